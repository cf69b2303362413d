"""`eigencal keys`: the keys that open the service."""

import sys
from datetime import datetime
from typing import Annotated, Literal, cast

import typer

from eigencal import Client, InvalidSetup, Key
from eigencal.cli.command import Invocation
from eigencal.cli.output import plain, table

HEAD = ("id", "name", "scope", "begins", "created", "expires", "revoked", "state")
SCOPES = ("score", "admin")
# What the first key of a scope ends, for good.
CLOSES = {
    "score": "from then on every caller of scoring, the drop-in and metrics needs a key",
    "admin": "from then on every caller of the admin routes needs an admin key, on loopback, too",
}


def list_(invocation: Invocation) -> None:
    """List the keys; their secrets are told only once, when they are made."""
    with invocation.client() as client:
        found = client.keys()
    invocation.out.show(found, table(HEAD, map(_row, found)) if found else ["there is no key"])


def create(
    invocation: Invocation,
    name: Annotated[str, typer.Argument(help="A name for people: who has the key.")],
    *,
    scope: Annotated[str, typer.Option(help="What it opens: score, or admin (everything).")] = "score",
    expires_at: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"],
            help="When it stops working; without a zone, in this machine's.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Make it, though it is the first key of its scope.")
    ] = False,
) -> None:
    """Make a key. Its secret is the only thing on stdout, and is told this once.

    The first key of a scope closes it for good: callers without a key are refused from then on. So that one
    is made after a yes, in a terminal, or with --yes alone.
    """
    if scope not in SCOPES:
        raise InvalidSetup(f"--scope is {' or '.join(SCOPES)}; not {scope}.")
    until = expires_at.astimezone() if expires_at is not None else None
    with invocation.client() as client:
        if not yes and _is_first(client, scope):
            _agreed(scope)
        made = client.create_key(name, cast(Literal["score", "admin"], scope), expires_at=until)
    invocation.out.show(made, [made.key])
    invocation.out.note(f"key {made.id} ({made.scope}) for {made.name}: it is not shown again")
    for warning in plain(made).get("warnings", []):
        invocation.out.note(f"note: {warning.get('message')}")


def _is_first(client: Client, scope: str) -> bool:
    """Tell whether no key of this scope was ever made: one that was revoked has closed it, too."""
    made = client.keys()
    return all(key.scope != scope for key in made)


def _agreed(scope: str) -> None:
    """Return once a person has agreed to close the scope. Raises InvalidSetup where nobody did."""
    why = f"This is the first key of scope {scope}: {CLOSES[scope]}, and nothing takes that back"
    if not sys.stdin.isatty():
        raise InvalidSetup(
            f'{why}. If that is meant: --yes; see docs/operating.md, "Keys made while it runs".'
        )
    if not typer.confirm(f"{why}. Make it?", err=True):
        raise InvalidSetup("No key was made.")


def revoke(
    invocation: Invocation,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the key.")],
) -> None:
    """Revoke a key: it opens nothing any more."""
    with invocation.client() as client:
        client.revoke_key(key_id)
    invocation.out.show({"id": key_id, "revoked": True}, [f"{key_id} is revoked"])


def _row(key: Key) -> tuple[object, ...]:
    return (
        key.id,
        key.name,
        key.scope,
        key.prefix,
        key.created_at,
        key.expires_at,
        key.revoked_at,
        plain(key).get("state"),
    )
