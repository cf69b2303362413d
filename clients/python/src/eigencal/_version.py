"""The version of this client."""

__version__ = "0.3.0"
