"""Detection of JSON that would block the event loop. Such JSON is refused or passed on without parsing.

A parser cannot be interrupted, so all other requests, including /healthz, wait until it is done. The cost is
up to a microsecond per value, for any length of the texts.
"""

import re

MAX_VALUES = 100_000
MAX_BATCH_VALUES = 200_000  # 256 items with 256 samples and log-probabilities are two thirds of this
# Pydantic formats all errors; hundreds of thousands would block the event loop for seconds.
MAX_FAULTS = 1000
MAX_ANSWER_VALUES = 500_000  # 3,500 tokens with 20 alternatives each
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


def is_heavy(content: bytes, most: int = MAX_VALUES) -> bool:
    """Return True if JSON in UTF-8 has more than `most` values, not counting commas and brackets in texts."""
    if _num_values(content) <= most:
        return False
    # More than `most` texts exceed the limit by themselves, and removing them would take long.
    if content.count(b'"') - content.count(b'\\"') > 2 * most:
        return True
    return _num_values(_TEXT.sub(b"", content)) > most


def _num_values(content: bytes) -> int:
    return content.count(b",") + content.count(b"[") + content.count(b"{")
