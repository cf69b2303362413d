"""Profiles: files that hold where a service is, and the key to it.

A profile is `NAME.toml` in the user's configuration folder, readable by its owner alone:

    url = "https://eigencal.example.org"
    key = "..."
"""

import json
import os
import stat
import sys
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import typer

from eigencal import InvalidSetup

DEFAULT_NAME = "default"
SUFFIX = ".toml"
MODE = 0o600
OTHERS = stat.S_IRWXG | stat.S_IRWXO
FIELDS = {"url", "key"}


@dataclass(frozen=True, slots=True)
class Profile:
    """What a profile holds; `key` is never shown."""

    url: str | None = None
    key: str | None = field(default=None, repr=False)


def folder() -> Path:
    """Return where profiles are, by the platform's custom: `~/.config/eigencal` on Linux."""
    return Path(typer.get_app_dir("eigencal"))


def path_of(name: str) -> Path:
    """Return the file of a profile: by name in the folder; what has a slash or ends in .toml is a path."""
    if name.endswith(SUFFIX) or {"/", os.sep} & set(name):
        return Path(name).expanduser()
    if not name or name.startswith("."):
        raise InvalidSetup(f"{name!r} cannot be the name of a profile.")
    return folder() / f"{name}{SUFFIX}"


def names() -> list[str]:
    """Return the names of the profiles in the folder."""
    return sorted(path.stem for path in folder().glob(f"*{SUFFIX}"))


def read(path: Path) -> Profile:
    """Return what a profile holds.

    Raises:
        InvalidSetup: it is not there, others can read its key, or it is no profile.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            held = tomllib.load(file)
    except FileNotFoundError:
        raise InvalidSetup(f"There is no profile {path}: eigencal login makes one.") from None
    except OSError as error:
        raise InvalidSetup(f"The profile {path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # tomllib's, and what is no UTF-8
        raise InvalidSetup(f"The profile {path} is no TOML: {_place(error)}") from None
    if held.get("key") and sys.platform != "win32" and mode & OTHERS:
        raise InvalidSetup(f"Others can read the key in {path}: chmod 600 {path}")
    return _checked(held, path)


def _place(error: ValueError) -> str:
    """Return what is wrong, without the text of the file, which may hold the key."""
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def _checked(held: dict[str, object], path: Path) -> Profile:
    if unknown := held.keys() - FIELDS:
        raise InvalidSetup(
            f"The profile {path} holds {', '.join(sorted(unknown))}: only url and key are known."
        )
    wrong = [name for name, value in held.items() if not isinstance(value, str)]
    if wrong:
        raise InvalidSetup(f"The profile {path}: {', '.join(wrong)} must be a text.")
    return Profile(*(str(held[name]) if name in held else None for name in ("url", "key")))


def write(path: Path, profile: Profile) -> None:
    """Write a profile that its owner alone can read, whole or not at all. Raises InvalidSetup."""
    held = {"url": profile.url, "key": profile.key}
    # JSON's strings are TOML's, for the printable ASCII that URLs and keys are made of.
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in held.items() if value)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # mkstemp's mode is 600: at no time can others read it.
        descriptor, made = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            Path(made).replace(path)
        except BaseException:
            Path(made).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidSetup(f"The profile {path} cannot be written: {error.strerror}") from None
