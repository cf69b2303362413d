"""Eigencal: calibrated spectral uncertainty of language models over HTTP."""

__version__ = "0.4.0"
