"""Shared fixtures for tests of pages."""

from tests.support.undrawn import undrawn

__all__ = ["undrawn"]
