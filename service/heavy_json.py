"""JSON of strangers that would hold the event loop up: it is refused, or passed on, unparsed.

A parser works in one piece, and whoever waits, /healthz among them, waits until it is done. What costs is the
number of values, up to a microsecond each, not the length of their texts.
"""

import re

MAX_VALUES = 100_000
MAX_BATCH_VALUES = 200_000  # 256 items with 256 samples and log-probabilities are two thirds of it
# Pydantic puts all of them into words; hundreds of thousands hold everyone up for seconds.
MAX_FAULTS = 1000
MAX_ANSWER_VALUES = 500_000  # 3,500 tokens with 20 alternatives each
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


def is_heavy(content: bytes, most: int = MAX_VALUES) -> bool:
    """Tell whether JSON in UTF-8 holds more than `most` values; commas and brackets in texts are none."""
    if _num_values(content) <= most:
        return False
    # So many texts are too many by themselves, and would take long to leave out.
    if content.count(b'"') - content.count(b'\\"') > 2 * most:
        return True
    return _num_values(_TEXT.sub(b"", content)) > most


def _num_values(content: bytes) -> int:
    return content.count(b",") + content.count(b"[") + content.count(b"{")
