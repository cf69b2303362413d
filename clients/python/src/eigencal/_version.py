"""The version of this client."""

__version__ = "0.5.0"
