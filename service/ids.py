"""Identifiers: a prefix and a ULID (time-ordered, 26 characters of Crockford's base 32)."""

import secrets
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_id(prefix: str) -> str:
    """Return a new identifier such as `scr_01K...`; later ones sort after earlier ones, by milliseconds."""
    # 48 bits of milliseconds, 80 of chance, five bits to a character.
    number = (time.time_ns() // 1_000_000 << 80) | secrets.randbits(80)
    return f"{prefix}_" + "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def age_s(id_: str) -> float:
    """Return how long ago an identifier was made, in seconds by this machine's clock.

    Raises ValueError for what `new_id` cannot have made.
    """
    milliseconds = 0
    for character in id_.rpartition("_")[2][:10]:  # ten characters of five bits hold the milliseconds
        milliseconds = milliseconds << 5 | _ALPHABET.index(character)
    return time.time() - milliseconds / 1000
