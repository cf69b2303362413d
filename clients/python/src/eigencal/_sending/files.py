"""Answers that go into a file."""

import os
import secrets
import shutil
from pathlib import Path

from eigencal._errors import InvalidSetup


def written(text: str, path: str | os.PathLike[str]) -> Path:
    """Write a text to a file, whole or not at all, and return its path; what was there stays until then.

    Raises:
        InvalidSetup: Nothing can be written there.
        OSError: The text could not be written to its end, as on a full disk.
    """
    target = Path(path)
    place = target.resolve()  # a link stays one
    try:
        if place.exists() and not place.is_file():  # a device or a pipe, which nothing may replace
            place.write_text(text, encoding="utf-8")
            return target
        beside = _beside(place)
    except OSError as error:
        raise InvalidSetup(f"{target} cannot be written: {error.strerror or error}") from None
    try:
        _write(beside, text)
        beside.replace(place)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error
    finally:
        beside.unlink(missing_ok=True)
    return target


def _beside(place: Path) -> Path:
    """Return a new empty file in the same folder, with the rights of the one that it will replace."""
    beside = place.with_name(f".eigencal-{secrets.token_hex(8)}.part")
    if place.exists():
        place.open("ab").close()  # a file that must not be written is not replaced either
        beside.touch(mode=0o600, exist_ok=False)
        shutil.copymode(place, beside)
    else:
        beside.touch(exist_ok=False)
    return beside


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
