"""Which service is asked, and with which key: options before the environment before the profile."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from eigencal.cli import profile as profiles
from eigencal.cli.profile import Profile

DEFAULT_URL = "http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True)
class Target:
    """Where to ask, the key, and where both are from; `key` is never shown."""

    url: str
    url_from: str
    key: str | None = field(repr=False)
    key_from: str
    profile_path: Path


def target(url: str | None, profile: str | None) -> Target:
    """Return the service to ask.

    Args:
        url: The option `--url`.
        profile: The option `--profile`. A profile that is named like this goes before the environment; the
            one of EIGENCAL_PROFILE, or `default`, after it. Where it has a URL, EIGENCAL_KEY is not for it.

    Raises:
        InvalidSetup: a profile that was named is not there, or one cannot be read.
    """
    path, held = _profile(profile)
    found = _url(url, profile, held)
    key, key_from = _key(profile, held, found[0])
    return Target(*found, key, key_from, path)


def _profile(option: str | None) -> tuple[Path, Profile]:
    name = option or os.environ.get("EIGENCAL_PROFILE")
    path = profiles.path_of(name or profiles.DEFAULT_NAME)
    if name is None and not path.exists():  # nobody asked for it
        return path, Profile()
    return path, profiles.read(path)


def _url(option: str | None, profile: str | None, held: Profile) -> tuple[str, str]:
    environment = (os.environ.get("EIGENCAL_URL"), "EIGENCAL_URL")
    from_profile = (held.url, "the profile")
    order = [from_profile, environment] if profile else [environment, from_profile]
    return next(
        ((value, where) for value, where in [(option, "--url"), *order] if value),
        (DEFAULT_URL, "the default"),
    )


def _key(profile: str | None, held: Profile, url: str) -> tuple[str | None, str]:
    environment = (os.environ.get("EIGENCAL_KEY"), "EIGENCAL_KEY")
    # The key of one service is never shown to another.
    own = (held.url or DEFAULT_URL).rstrip("/") == url.rstrip("/")
    from_profile = (held.key if own else None, "the profile")
    if profile and held.url:  # whose service the environment's key is of, nobody knows
        return from_profile if from_profile[0] else (None, "nowhere")
    order = [from_profile, environment] if profile else [environment, from_profile]
    return next(((value, where) for value, where in order if value), (None, "nowhere"))
