"""The command `eigencal keys`: the service's keys."""

import sys
from datetime import datetime
from typing import Annotated, Literal

import typer

from eigencal import InvalidSetupError
from eigencal.cli.command import Invocation

COLUMNS = ("id", "name", "scope", "prefix", "created_at", "expires_at", "revoked_at", "state")
# Permanent effect of the first key of a scope.
CLOSES = {
    "score": "from then on every caller of scoring, the drop-in and metrics needs a key",
    "admin": "from then on every caller of the admin routes needs an admin key, on loopback, too",
}


def list_(invocation: Invocation) -> None:
    """List the keys. Their secrets are shown only when they are created."""
    with invocation.client() as client:
        invocation.out.table(client.keys(), COLUMNS, "there is no key")


def create(
    invocation: Invocation,
    name: Annotated[str, typer.Argument(help="A name for people, such as the holder of the key.")],
    *,
    scope: Annotated[
        Literal["score", "admin"], typer.Option(help="score: scoring only; admin: everything.")
    ] = "score",
    expires_at: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"],
            help="When the key expires; default zone: this machine's.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Create it even if it is the first key of its scope.")
    ] = False,
) -> None:
    """Create a key. Its secret is the only output on stdout and is never shown again.

    The first key of a scope closes it permanently: callers without a key are refused from then on. It is
    created only after confirmation in a terminal, or with --yes.
    """
    until = expires_at.astimezone() if expires_at is not None else None
    with invocation.client() as client:
        # Revoked keys have closed their scope, too.
        if not yes and all(key.scope != scope for key in client.keys()):  # noqa: SIM118
            _confirm(scope)
        made = client.create_key(name, scope, expires_at=until)
    invocation.out.show(made, [made.key])
    invocation.out.note(f"key {made.id} ({made.scope}) for {made.name}: it is not shown again")
    for warning in made.warnings:
        invocation.out.note(f"note: {warning.message}")


def _confirm(scope: str) -> None:
    """Ask for confirmation to close the scope. Raises InvalidSetupError without it."""
    why = f"This is the first key of scope {scope}: {CLOSES[scope]}, and nothing takes that back"
    if not sys.stdin.isatty():
        raise InvalidSetupError(
            f'{why}. If that is meant: --yes; see docs/operating.md, "Keys made at runtime".'
        )
    if not typer.confirm(f"{why}. Make it?", err=True):
        raise InvalidSetupError("No key was made.")


def revoke(
    invocation: Invocation,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the key.")],
) -> None:
    """Revoke a key."""
    with invocation.client() as client:
        client.revoke_key(key_id)
    invocation.out.show({"id": key_id, "revoked": True}, [f"{key_id} is revoked"])
