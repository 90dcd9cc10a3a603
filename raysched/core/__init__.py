"""The pure core: events are folded, decisions are planned. Nothing here touches a clock, a disk or Ray."""
