"""Eigencal: calibrated spectral uncertainty of language models over HTTP."""

__version__ = "0.5.0"
