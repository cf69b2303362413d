"""`eigencal keys`: the keys that open the service."""

import sys
from datetime import datetime
from typing import Annotated, Literal

import typer

from eigencal import InvalidSetupError
from eigencal.cli.command import Invocation

COLUMNS = ("id", "name", "scope", "prefix", "created_at", "expires_at", "revoked_at", "state")
# What the first key of a scope ends, for good.
CLOSES = {
    "score": "from then on every caller of scoring, the drop-in and metrics needs a key",
    "admin": "from then on every caller of the admin routes needs an admin key, on loopback, too",
}


def list_(invocation: Invocation) -> None:
    """List the keys; their secrets are shown only once, when they are made."""
    with invocation.client() as client:
        invocation.out.table(client.keys(), COLUMNS, "there is no key")


def create(
    invocation: Invocation,
    name: Annotated[str, typer.Argument(help="A name for people: who has the key.")],
    *,
    scope: Annotated[
        Literal["score", "admin"], typer.Option(help="What it opens: score, or admin (everything).")
    ] = "score",
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
    """Make a key. Its secret is the only thing on stdout, and is shown this once.

    The first key of a scope closes it for good: callers without a key are refused from then on. So that one
    is made after a yes, in a terminal, or with --yes alone.
    """
    until = expires_at.astimezone() if expires_at is not None else None
    with invocation.client() as client:
        # One that was revoked has closed its scope, too.
        if not yes and all(key.scope != scope for key in client.keys()):  # noqa: SIM118
            _confirm(scope)
        made = client.create_key(name, scope, expires_at=until)
    invocation.out.show(made, [made.key])
    invocation.out.note(f"key {made.id} ({made.scope}) for {made.name}: it is not shown again")
    for warning in made.warnings:
        invocation.out.note(f"note: {warning.message}")


def _confirm(scope: str) -> None:
    """Return once a person has agreed to close the scope. Raises InvalidSetupError where nobody did."""
    why = f"This is the first key of scope {scope}: {CLOSES[scope]}, and nothing takes that back"
    if not sys.stdin.isatty():
        raise InvalidSetupError(
            f'{why}. If that is meant: --yes; see docs/operating.md, "Keys made while it runs".'
        )
    if not typer.confirm(f"{why}. Make it?", err=True):
        raise InvalidSetupError("No key was made.")


def revoke(
    invocation: Invocation,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the key.")],
) -> None:
    """Revoke a key: it opens nothing any more."""
    with invocation.client() as client:
        client.revoke_key(key_id)
    invocation.out.show({"id": key_id, "revoked": True}, [f"{key_id} is revoked"])
