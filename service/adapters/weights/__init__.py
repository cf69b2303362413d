"""Model weights that come as packages: found, fetched, checked."""
