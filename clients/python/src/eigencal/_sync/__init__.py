"""The client that waits."""
