"""The agent of one node: `node_agent` is the per-node actor, `nvml` reads GPUs through a child process, `checks` turns
readings into evidence. It reports and decides nothing; it imports nothing of raysched but may share its core values."""
