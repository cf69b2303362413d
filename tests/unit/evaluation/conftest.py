"""What the tests of an evaluation share."""

from tests.support.undrawn import undrawn

__all__ = ["undrawn"]
