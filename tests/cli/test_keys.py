"""`eigencal keys` with the real application."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.conftest import Here, in_process
from tests.support.command import PATIENCE_S, Command
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.in_a_terminal import terminal
from tests.support.in_thread import serving_app
from tests.support.sqlite_store import SqliteStore


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Return the URL of an application without any key."""
    folder = tmp_path / "data"
    with serving_app(folder, llm=FakeLLM(), embedder=FakeEmbedder(8), store=SqliteStore()) as result:
        yield result


@pytest.fixture
def run(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    return in_process(tmp_path, url, monkeypatch)


def test_create_list_and_revoke_a_key(run: Here) -> None:
    assert run("keys", "list").out == "there is no key\n"
    create = ("keys", "create", "the nightly job", "--expires-at", "2100-01-31T12:00:00+0000")
    done = run(*create, "--yes")
    assert done.code == 0, done.err
    secret, end = done.out.removesuffix("\n"), done.out[-1]
    assert end == "\n" and "\n" not in secret, "stdout holds the secret and nothing else"
    assert "need a key from now on" in done.err
    assert secret not in done.err

    (entry,) = run("keys", "list", "--json").json
    assert (entry["name"], entry["scope"], entry["state"]) == ("the nightly job", "score", "valid")
    assert datetime.fromisoformat(entry["expires_at"]) == datetime(2100, 1, 31, 12, tzinfo=UTC)
    listed = run("keys", "list").out
    assert "the nightly job" in listed and "valid" in listed
    assert secret not in listed

    assert run("score", "?").code == run("score", "?", EIGENCAL_KEY="wrong").code == 4
    assert run("score", "?", EIGENCAL_KEY=secret).code == 0
    assert run("keys", "revoke", entry["id"]).out == f"{entry['id']} is revoked\n"
    assert run("keys", "list", "--json").json[0]["state"] == "revoked"
    assert run("score", "?", EIGENCAL_KEY=secret).code == 4


def test_json_output_and_errors(run: Here) -> None:
    assert run("keys", "create", "x", "--scope", "all").code == 2
    assert run("keys", "create", "x", "--expires-at", "tomorrow").code == 2
    assert run("keys", "revoke", "key_9").code == 5
    assert run("keys", "list", "--json").json == []
    made = run("keys", "create", "ours", "--scope", "admin", "--json", "--yes").json
    assert made["scope"] == "admin"
    assert run("keys", "list").code == 4, "the first admin key closes this route"
    listed = run("keys", "list", "--json", EIGENCAL_KEY=made["key"]).json
    assert [each["id"] for each in listed] == [made["id"]]


@pytest.mark.parametrize("scope", ["score", "admin"])
def test_first_key_of_a_scope_needs_yes(run: Here, scope: str) -> None:
    create = ("keys", "create", "x", "--scope", scope)
    done = run(*create)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert f"first key of scope {scope}" in done.err and "--yes" in done.err
    assert "Keys made at runtime" in done.err
    assert run("score", "?").code == 0, "nothing was closed"
    assert run("keys", "list", "--json").json == []
    made = run(*create, "--yes", "--json").json
    key = {"EIGENCAL_KEY": made["key"]} if scope == "admin" else {}
    assert run("keys", "revoke", made["id"], **key).code == 0
    if scope == "score":
        assert run(*create).code == 0, "it is closed already: there is nothing to ask"


def test_first_key_of_a_scope_asks_in_a_terminal(run: Here, url: str, command: Command) -> None:
    def typed(answer: str) -> int:
        with terminal(command, "keys", "create", "x", "--url", url) as shown:
            shown.until("Make it? [y/N]: ")
            shown.types(answer)
            return shown.process.wait(PATIENCE_S)

    assert typed("n\n") == 2
    assert run("keys", "list", "--json").json == []
    assert typed("y\n") == 0
    assert run("score", "?").code == 4
