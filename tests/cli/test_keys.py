"""`eigencal keys`, before routes as the contract has them, on a real socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastapi import FastAPI, Request, Response
from starlette.responses import JSONResponse

from tests.support.command import Command, Done
from tests.support.live import served

SECRET = "eigencal_UIrBIy7Ax9c5tAVwfIcNWyLHqPSlFxseKSJU4EIELjU"
NO_KEY = {"code": "not_found", "detail": "No key has this id.", "status": 404, "retryable": False}
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Keys:
    """The keys of a service."""

    def __init__(self) -> None:
        self.made: dict[str, dict[str, Any]] = {}
        self.app = FastAPI()
        self.app.get("/keys")(self.list)
        self.app.post("/keys", status_code=201)(self.create)
        self.app.delete("/keys/{key_id}")(self.revoke)

    async def list(self) -> list[dict[str, Any]]:
        return list(self.made.values())

    async def create(self, request: Request) -> dict[str, Any]:
        told = await request.json()
        made = {
            "id": f"key_{len(self.made)}",
            "prefix": SECRET[:15],
            "created_at": datetime(2026, 11, 22, tzinfo=UTC).isoformat(),
            "revoked_at": None,
            "expires_at": None,
            "state": "valid",
            **told,
        }
        self.made[made["id"]] = made
        warnings = [{"code": "scope_closed", "message": "Scoring needs a key from now on."}]
        return {**made, "key": SECRET, "warnings": warnings}

    async def revoke(self, key_id: str) -> Response:
        if key_id not in self.made:
            return JSONResponse(NO_KEY, 404, media_type="application/problem+json")
        self.made[key_id] |= {"state": "revoked", "revoked_at": datetime.now(UTC).isoformat()}
        return Response(status_code=204)


@pytest.fixture
async def keys(tmp_path: Path) -> AsyncIterator[tuple[Keys, Any]]:
    made = Keys()

    @asynccontextmanager
    async def asking() -> AsyncIterator[Any]:
        async with served(made.app) as port:
            command = Command(tmp_path, {"EIGENCAL_URL": f"http://127.0.0.1:{port}"})

            async def run(*arguments: object) -> Done:
                return await anyio.to_thread.run_sync(lambda: command(*arguments))

            yield run

    async with asking() as run:
        yield made, run


async def test_a_key_from_its_making_to_its_end(keys: tuple[Keys, Any]) -> None:
    world, run = keys
    assert (await run("keys", "list")).out == "there is no key\n"
    done = await run("keys", "create", "the nightly job", "--expires-at", "2030-01-31T12:00:00+0000")
    assert (done.code, done.out) == (0, SECRET + "\n"), "stdout holds the secret and nothing else"
    assert "Scoring needs a key from now on." in done.err
    assert SECRET not in done.err
    told = world.made["key_0"]
    assert (told["name"], told["scope"]) == ("the nightly job", "score")
    assert datetime.fromisoformat(told["expires_at"]) == datetime(2030, 1, 31, 12, tzinfo=UTC)
    listed = (await run("keys", "list")).out
    assert "the nightly job" in listed
    assert "valid" in listed
    assert SECRET not in listed
    assert (await run("keys", "revoke", "key_0")).out == "key_0 is revoked\n"
    assert (await run("keys", "list", "--json")).json[0]["state"] == "revoked"


async def test_json_and_what_is_wrong(keys: tuple[Keys, Any]) -> None:
    world, run = keys
    made = (await run("keys", "create", "ours", "--scope", "admin", "--json")).json
    assert (made["key"], made["scope"]) == (SECRET, "admin")
    assert (await run("keys", "create", "x", "--scope", "all")).code == 2
    assert (await run("keys", "create", "x", "--expires-at", "tomorrow")).code == 2
    assert len(world.made) == 1
    assert (await run("keys", "revoke", "key_9")).code == 5
