"""When a call may be made again."""

from enum import Enum


class Repeat(Enum):
    """When a call that failed is made again by the client itself.

    A time limit that struck is never a reason: the service may still be at work on the first call.
    """

    SAFE = "safe"
    """Its effect is the same however often it is made: also after a broken connection, and 502, 503 and 504
    that the service calls retryable. A score is such a call: it changes nothing, and the service stops
    drawing answers when its caller is gone."""
    UNSEEN = "unseen"
    """Only where the service did nothing for certain: it was not reached, or had no room."""
