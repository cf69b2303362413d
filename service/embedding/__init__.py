"""Embedders, which map texts to unit vectors, and their vector cache."""
