"""The shell around the core: the loop, its ports, and their Ray implementations."""
