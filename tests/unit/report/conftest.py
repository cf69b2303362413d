"""What the tests of the pages share."""

from tests.support.undrawn import undrawn

__all__ = ["undrawn"]
