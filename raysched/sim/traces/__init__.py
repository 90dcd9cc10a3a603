"""Readers of public cluster traces. The data is not part of the project: its folder is always given by the caller."""
