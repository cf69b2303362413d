"""`eigencal score --file`, where something goes wrong: no question stops the others, no answer is lost."""

import asyncio
import json
import os
import resource
import subprocess
from pathlib import Path

import pytest

from eigencal import InvalidSetup
from eigencal.cli.bulk import locked as locks
from eigencal.cli.bulk.locked import locked
from eigencal.cli.bulk.results import Results
from tests.cli.conftest import Here
from tests.cli.scripted import problem, scored, scripted
from tests.support.command import Command
from tests.support.openai_server import Exchange

FAILED = b'{"line": 2, "id": null, "request": "m", "error": {"code": "llm_error"}}\n'
KEPT = b'{"line": 1, "id": null, "request": "m", "result": {}}\n'


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"prompt": null}', "line 2: it has none of prompt, messages, samples"),
        ('{"prompt": "b", "target_error": NaN}', "line 2: it has a number that JSON has not"),
        ('{"prompt": "b", "target_error": 1e999}', "line 2: it has a number that JSON has not"),
        ('{"prompt": "b", "id": -Infinity}', "line 2: it has a number that JSON has not"),
        ('{"prompt": "b", "messages": ' + "[" * 100_000 + "}", "line 2: it is nested too deeply"),
    ],
)
def test_what_cannot_be_sent_is_named_by_its_line(
    here: Here, tmp_path: Path, results: Path, line: str, said: str
) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text(f'{{"prompt": "a"}}\n{line}\n{{"prompt": "c"}}\n')
    with scripted(scored) as (url, service):
        done = here("score", "--file", file, "--out", results, "--url", url)
    assert (done.code, results.exists(), service.requests) == (2, False, [])
    assert said in done.err


def test_what_the_client_cannot_send_is_the_error_of_its_question(
    here: Here, tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A question that the check let through: the client's own refusal must not stop the others.
    monkeypatch.setattr("eigencal.cli.bulk.questions._sendable", lambda question: question)
    file = tmp_path / "q.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": "b", "target_error": NaN}\n{"prompt": "c"}\n')
    with scripted(scored) as (url, _):
        done = here("score", "--file", file, "--out", results, "--url", url)
    assert done.code == 8, done.err
    rows = {row["line"]: row for row in map(json.loads, results.read_text().splitlines())}
    assert rows.keys() == {1, 2, 3}
    assert rows[2]["error"]["code"] == "invalid_setup"


@pytest.mark.parametrize("then", ["other\n", '{"prompt": "x"}\nno json\n' * 3])
def test_questions_that_go_while_they_are_asked_are_told(
    here: Here, tmp_path: Path, results: Path, then: str
) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text("".join(f'{{"prompt": "question number {i}"}}\n' for i in range(5000)))

    async def changes(exchange: Exchange) -> None:
        if len(exchange.server.requests) == 20:
            file.write_text(then)
        await scored(exchange)

    with scripted(changes) as (url, _):
        done = here("score", "--file", file, "--out", results, "--url", url)
    assert done.code == 1, done.err
    assert "has changed: line" in done.err or "of 5000 questions were gone" in done.err


def test_the_questions_are_no_place_for_results(here: Here, tmp_path: Path) -> None:
    file, other = tmp_path / "q.txt", tmp_path / "other.jsonl"
    file.write_text("{")  # as a line of results begins
    os.link(file, other)
    for out in (file, other):
        done = here("score", "--file", file, "--out", out)
        assert (done.code, file.read_text()) == (2, "{")
        assert "holds the questions" in done.err


def test_errors_are_asked_again_behind_a_link(here: Here, tmp_path: Path) -> None:
    file, real, link = tmp_path / "q.txt", tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    foreign = tmp_path / "real.jsonl.part"
    file.write_text("a\nb\n")
    real.touch(mode=0o600)
    link.symlink_to(real)
    foreign.write_text("mine")

    async def refuses(exchange: Exchange) -> None:
        if exchange.body["prompt"] == "b":
            await exchange.send(422, problem(422, "invalid_request"))
        else:
            await scored(exchange)

    with scripted(refuses) as (url, _):
        assert here("score", "--file", file, "--out", link, "--url", url).code == 8
    with scripted(scored) as (url, service):
        done = here("score", "--file", file, "--out", link, "--url", url, "--retry-errors")
    assert (done.code, [body["prompt"] for body in service.bodies]) == (0, ["b"]), done.err
    assert link.is_symlink()
    assert ["result" in json.loads(line) for line in real.read_text().splitlines()] == [True, True]
    assert real.stat().st_mode & 0o777 == 0o600
    assert foreign.read_text() == "mine"
    assert sorted(tmp_path.glob("*.part")) == [foreign]


def test_nobody_else_gets_the_file_while_its_errors_go(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results.write_bytes(KEPT + FAILED)
    replace = Path.replace
    tried = list[bool]()

    def another_tries() -> None:
        with pytest.raises(InvalidSetup, match="being written by another command"):
            locked(results)
        tried.append(True)

    def interrupted(self: Path, target: Path) -> Path:
        another_tries()
        replaced = replace(self, target)
        another_tries()
        return replaced

    monkeypatch.setattr(Path, "replace", interrupted)
    with Results(results) as ours:
        ours.drop_errors()
        another_tries()
    assert (len(tried), results.read_bytes()) == (3, KEPT)


def test_a_file_that_was_replaced_before_it_was_locked_is_not_written(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results.write_bytes(KEPT)
    new = results.with_suffix(".new")
    new.write_bytes(KEPT)
    lock = locks._lock
    monkeypatch.setattr(locks, "_lock", lambda file: (new.replace(results), lock(file)))
    with pytest.raises(InvalidSetup, match="being written by another command"):
        locked(results)


def test_errors_that_cannot_be_dropped_stay(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results.write_bytes(KEPT + FAILED)

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with Results(results) as ours, pytest.raises(OSError, match="No space left"):
        ours.drop_errors()
    assert results.read_bytes() == KEPT + FAILED
    assert list(results.parent.iterdir()) == [results]


def test_a_full_disk_ends_it_with_whole_lines_that_are_counted(
    bare: Command, tmp_path: Path, results: Path
) -> None:
    file = tmp_path / "q.txt"
    file.write_text("".join(f"question {i}\n" for i in range(60)))
    most_bytes = 7000
    with scripted(scored) as (url, service):
        arguments = bare.line("score", "--file", file, "--out", results, "--url", url)
        # Past this size the system refuses to write, as on a full disk.
        limit = (most_bytes, most_bytes)
        ended = subprocess.run(
            arguments,
            capture_output=True,
            env=bare.environment(),
            timeout=300,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        )
        held = results.read_bytes()
        assert (ended.returncode, held[-1:]) == (1, b"\n"), ended.stderr
        count = held.count(b"\n")
        assert f"scored: {count}, errors: 0, left: {60 - count}" in ended.stderr.decode()
        done = bare("score", "--file", file, "--out", results, "--url", url)
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in results.read_bytes().splitlines()]
    assert sorted(row["line"] for row in rows) == list(range(1, 61))
    assert len(service.requests) <= 60 + 8


def test_a_question_that_alone_is_refused_for_now_gets_its_line(
    here: Here, tmp_path: Path, results: Path
) -> None:
    file = tmp_path / "q.txt"
    file.write_text("".join(f"question {i}\n" for i in range(400)))

    async def poisoned(exchange: Exchange) -> None:
        if exchange.body["prompt"] == "question 3":
            await exchange.send(503, problem(503, "llm_unavailable", retryable=True))
            return
        await asyncio.sleep(0.05)
        await scored(exchange)

    with scripted(poisoned) as (url, _):
        done = here("score", "--file", file, "--out", results, "--url", url, "--patience", 3)
    assert done.code == 8, done.err
    assert "scored: 399, errors: 1, left: 0" in done.err
