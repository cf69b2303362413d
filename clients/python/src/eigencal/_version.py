"""The version of this client."""

__version__ = "0.4.0"
