"""The routes, each beside its schemas."""
