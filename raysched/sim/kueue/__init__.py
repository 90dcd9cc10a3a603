"""Kueue's performance generators, played on the real service, loop, books and core under the virtual clock."""
