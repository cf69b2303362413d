"""Texts to unit vectors: a model in this process, or an embeddings server."""
