"""A small language model in this process."""
