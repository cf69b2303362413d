"""`eigencal score --file`, where something goes wrong: no question stops the others, no answer is lost."""

import asyncio
import json
import os
import resource
import subprocess
from pathlib import Path

import pytest

from eigencal.cli.bulk import Question, results_at
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
        (
            '{"prompt": "b", "target_error": 1e999}',
            "line 2: Out of range float values are not JSON compliant",
        ),
        ('{"prompt": "b", "messages": ' + "[" * 100_000 + "}", "line 2: maximum recursion depth exceeded"),
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
    file.write_text("a\nb\n")
    real.touch(mode=0o600)
    link.symlink_to(real)

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
    assert {path.name for path in tmp_path.iterdir()} == {
        "q.txt",
        "real.jsonl",
        "real.jsonl.lock",
        "link.jsonl",
    }


def test_errors_that_cannot_be_dropped_stay(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results.write_bytes(KEPT + FAILED)

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    questions = [Question(line, None, {}, "m") for line in (1, 2)]
    with pytest.raises(OSError, match="No space left"), results_at(results, questions, retry_errors=True):
        pass
    assert results.read_bytes() == KEPT + FAILED


def test_a_full_disk_ends_it_and_whole_lines_are_counted(
    command: Command, tmp_path: Path, results: Path
) -> None:
    file = tmp_path / "q.txt"
    file.write_text("".join(f"question {i}\n" for i in range(60)))
    most_bytes = 7000
    with scripted(scored) as (url, service):
        arguments = command.line("score", "--file", file, "--out", results, "--url", url)
        # Past this size the system refuses to write, as on a full disk.
        limit = (most_bytes, most_bytes)
        ended = subprocess.run(
            arguments,
            capture_output=True,
            env=command.environment(),
            timeout=300,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        )
        held = results.read_bytes()
        assert ended.returncode == 1, ended.stderr
        count = held.count(b"\n")
        assert f"scored: {count}, errors: 0, left: {60 - count}" in ended.stderr.decode()
        done = command("score", "--file", file, "--out", results, "--url", url)
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in results.read_bytes().splitlines()]
    assert sorted(row["line"] for row in rows) == list(range(1, 61))
    assert len(service.requests) <= 60 + 8


def test_a_question_that_alone_is_refused_for_now_gets_its_line(
    here: Here, tmp_path: Path, results: Path
) -> None:
    file = tmp_path / "q.txt"
    file.write_text("".join(f"question {i}\n" for i in range(40)))

    async def poisoned(exchange: Exchange) -> None:
        if exchange.body["prompt"] == "question 3":
            await exchange.send(503, problem(503, "llm_unavailable", retryable=True))
            return
        await asyncio.sleep(0.05)
        await scored(exchange)

    with scripted(poisoned) as (url, _):
        done = here("score", "--file", file, "--out", results, "--url", url, "--patience", 0.5)
    assert done.code == 8, done.err
    assert "scored: 39, errors: 1, left: 0" in done.err
