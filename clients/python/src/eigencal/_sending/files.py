"""Answers that go into a file."""

import os
from pathlib import Path

from eigencal._errors import InvalidSetup


def written(text: str, path: str | os.PathLike[str]) -> Path:
    """Write a text to a file and return its path. Raises InvalidSetup where it cannot be written."""
    target = Path(path)
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidSetup(f"{target} cannot be written: {error.strerror or error}") from None
    return target
