"""`eigencal keys`: the keys that open the service."""

from datetime import datetime
from typing import Annotated, Literal, cast

import typer

from eigencal import InvalidSetup, Key
from eigencal.cli.command import Invocation
from eigencal.cli.output import plain, table

HEAD = ("id", "name", "scope", "begins", "created", "expires", "revoked", "state")
SCOPES = ("score", "admin")


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
) -> None:
    """Make a key. Its secret is the only thing on stdout, and is told this once."""
    if scope not in SCOPES:
        raise InvalidSetup(f"--scope is {' or '.join(SCOPES)}; not {scope}.")
    until = expires_at.astimezone() if expires_at is not None else None
    with invocation.client() as client:
        made = client.create_key(name, cast(Literal["score", "admin"], scope), expires_at=until)
    invocation.out.show(made, [made.key])
    invocation.out.note(f"key {made.id} ({made.scope}) for {made.name}: it is not shown again")
    for warning in plain(made).get("warnings", []):
        invocation.out.note(f"note: {warning.get('message')}")


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
