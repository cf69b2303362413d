"""The use case of POST /score."""
