"""The HTTP side: the only FastAPI code."""
