"""`eigencal keys`, before the real application on a real socket."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from service.app import create_app
from service.settings import Settings
from tests.support.command import PATIENCE_S, Command, Done
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.in_a_terminal import terminal
from tests.support.live import served
from tests.support.sqlite_store import SqliteStore

Run = Callable[..., Awaitable[Done]]
INTERRUPT = "Ctrl-C"
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def command(tmp_path: Path) -> AsyncIterator[Command]:
    settings = Settings(data_dir=tmp_path / "data")
    app = create_app(settings, llm=FakeLLM(), embedder=FakeEmbedder(8), store=SqliteStore())
    async with served(app) as port:
        yield Command(tmp_path, {"EIGENCAL_URL": f"http://127.0.0.1:{port}"})


@pytest.fixture
def run(command: Command) -> Run:
    async def once(*arguments: object, **env: str) -> Done:
        return await anyio.to_thread.run_sync(lambda: command(*arguments, **env))

    return once


async def test_a_key_from_its_making_to_its_end(run: Run) -> None:
    assert (await run("keys", "list")).out == "there is no key\n"
    create = ("keys", "create", "the nightly job", "--expires-at", "2100-01-31T12:00:00+0000")
    done = await run(*create, "--yes")
    assert done.code == 0, done.err
    secret, end = done.out.removesuffix("\n"), done.out[-1]
    assert end == "\n" and "\n" not in secret, "stdout holds the secret and nothing else"
    assert "need a key from now on" in done.err
    assert secret not in done.err

    (told,) = (await run("keys", "list", "--json")).json
    assert (told["name"], told["scope"], told["state"]) == ("the nightly job", "score", "valid")
    assert datetime.fromisoformat(told["expires_at"]) == datetime(2100, 1, 31, 12, tzinfo=UTC)
    listed = (await run("keys", "list")).out
    assert "the nightly job" in listed and "valid" in listed
    assert secret not in listed

    assert (await run("score", "?")).code == (await run("score", "?", EIGENCAL_KEY="wrong")).code == 4
    assert (await run("score", "?", EIGENCAL_KEY=secret)).code == 0
    assert (await run("keys", "revoke", told["id"])).out == f"{told['id']} is revoked\n"
    assert (await run("keys", "list", "--json")).json[0]["state"] == "revoked"
    assert (await run("score", "?", EIGENCAL_KEY=secret)).code == 4


async def test_json_and_what_is_wrong(run: Run) -> None:
    assert (await run("keys", "create", "x", "--scope", "all")).code == 2
    assert (await run("keys", "create", "x", "--expires-at", "tomorrow")).code == 2
    assert (await run("keys", "revoke", "key_9")).code == 5
    assert (await run("keys", "list", "--json")).json == []
    made = (await run("keys", "create", "ours", "--scope", "admin", "--json", "--yes")).json
    assert made["scope"] == "admin"
    assert (await run("keys", "list")).code == 4, "the first admin key closes this route"
    listed = (await run("keys", "list", "--json", EIGENCAL_KEY=made["key"])).json
    assert [each["id"] for each in listed] == [made["id"]]


@pytest.mark.parametrize("scope", ["score", "admin"])
async def test_the_first_key_of_a_scope_is_made_after_a_yes_alone(run: Run, scope: str) -> None:
    create = ("keys", "create", "x", "--scope", scope)
    done = await run(*create)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert f"first key of scope {scope}" in done.err and "--yes" in done.err
    assert "Keys made while it runs" in done.err
    assert (await run("score", "?")).code == 0, "nothing was closed"
    assert (await run("keys", "list", "--json")).json == []
    made = (await run(*create, "--yes", "--json")).json
    key = {"EIGENCAL_KEY": made["key"]} if scope == "admin" else {}
    assert (await run("keys", "revoke", made["id"], **key)).code == 0
    if scope == "score":
        assert (await run(*create)).code == 0, "it is closed already: there is nothing to ask"


async def test_in_a_terminal_it_asks_before_it_closes_a_scope(run: Run, command: Command) -> None:
    def typed(answer: str) -> tuple[int, str]:
        with terminal(command, "keys", "create", "x") as shown:
            shown.until("Make it? [y/N]: ")
            shown.interrupts() if answer == INTERRUPT else shown.types(answer)
            code = shown.process.wait(PATIENCE_S)
            return code, shown.rest()

    for answer, code in (("n\n", 2), (INTERRUPT, 130)):
        ended, said = await anyio.to_thread.run_sync(typed, answer)
        assert (ended, "fault" in said) == (code, False), said
        assert (await run("keys", "list", "--json")).json == []
    assert (await anyio.to_thread.run_sync(typed, "y\n"))[0] == 0
    assert (await run("score", "?")).code == 4


async def test_help_says_that_the_first_key_closes_the_scope(run: Run) -> None:
    said = " ".join((await run("keys", "create", "--help")).out.split())
    assert "The first key of a scope closes it for good" in said
