"""Shared fixtures for tests of the evaluation."""

from tests.support.undrawn import undrawn

__all__ = ["undrawn"]
