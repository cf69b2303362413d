"""Uploaded dev data: read, checked row by row, bounded."""
