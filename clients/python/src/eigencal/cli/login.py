"""`eigencal login`, `logout`, `profile`: what is remembered of a service."""

import getpass
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from eigencal import Client, EigencalError, Forbidden, InvalidSetup, Unauthorized, UnexpectedAnswer
from eigencal.cli import profile as profiles
from eigencal.cli.command import Invocation
from eigencal.cli.profile import Profile
from eigencal.cli.target import DEFAULT_URL

MOST_KEY_BYTES = 4096


def login(invocation: Invocation) -> None:
    """Remember a service and its key in a profile that only you can read.

    The key is asked for without showing it, or read from stdin where that is no terminal. An empty one: none.
    """
    path = _path(invocation)
    url = invocation.url or os.environ.get("EIGENCAL_URL") or _asked_url()
    key = _asked_key()
    with Client(url, key=key) as client:
        _check(invocation, client)
        profiles.write(path, Profile(client.url, key or None))
    invocation.out.show(
        {"profile": str(path), "url": client.url, "key": bool(key)},
        [f"{path} holds {client.url} and {'a key' if key else 'no key'}"],
    )


def logout(invocation: Invocation) -> None:
    """Forget a profile: its file is deleted."""
    path = _path(invocation)
    if not path.exists():
        raise InvalidSetup(f"There is no profile {path}.")
    profiles.read(path)  # what is no profile is not deleted
    path.unlink()
    invocation.out.show({"profile": str(path), "deleted": True}, [f"{path} is deleted"])


def profile(
    invocation: Invocation,
    *,
    list_: Annotated[bool, typer.Option("--list", help="List the profiles there are.")] = False,
) -> None:
    """Show which service is asked, whether with a key, and where both are from. Keys are never shown."""
    if list_:
        found = profiles.names()
        invocation.out.show(found, found or [f"no profile in {profiles.folder()}"])
        return
    to = invocation.target
    told = {"url": to.url, "url_from": to.url_from, "key": to.key is not None, "key_from": to.key_from}
    there = to.profile_path.exists()
    invocation.out.show(
        {**told, "profile": str(to.profile_path) if there else None},
        [
            f"url      {to.url}  (from {to.url_from})",
            f"key      {f'there is one (from {to.key_from})' if to.key else 'none'}",
            f"profile  {to.profile_path if there else f'none: {to.profile_path} is not there'}",
        ],
    )


def _path(invocation: Invocation) -> Path:
    name = invocation.profile or os.environ.get("EIGENCAL_PROFILE") or profiles.DEFAULT_NAME
    return profiles.path_of(name)


def _asked_url() -> str:
    if not sys.stdin.isatty():
        return DEFAULT_URL
    return str(typer.prompt("Service", default=DEFAULT_URL, err=True))


def _asked_key() -> str:
    if sys.stdin.isatty():
        return getpass.getpass("Key (empty for none): ").strip()
    return sys.stdin.readline(MOST_KEY_BYTES).strip()


def _check(invocation: Invocation, client: Client) -> None:
    """Raise Unauthorized for a key that is refused, UnexpectedAnswer for what is not the service.

    A service that is away is only told of.
    """
    try:
        client.models(timeout_s=10)
    except (Unauthorized, Forbidden, UnexpectedAnswer):
        raise
    except EigencalError as error:
        invocation.out.note(f"eigencal: not checked: {error.detail}")
