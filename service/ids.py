"""Identifiers: a prefix and a ULID (time-ordered, 26 characters of Crockford's base 32)."""

import secrets
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_id(prefix: str) -> str:
    """Return a new identifier such as `scr_01K...`; later ones sort after earlier ones, by milliseconds."""
    # 48 bits of milliseconds, 80 of chance, five bits to a character.
    number = (time.time_ns() // 1_000_000 << 80) | secrets.randbits(80)
    return f"{prefix}_" + "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))
