"""Experiments: arrays in, rows and figures out. One module each; no file, no model, no clock."""
