"""Service or command killed with -9 while scoring a file: each question still has one line."""

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.processes import free_port
from tests.support.command import Command
from tests.support.openai_server import OpenAIServer, serving_in_thread
from tests.support.services import asked, cities, llm_and_embedder, service, until

COUNT = 500
KILLED_AFTER = 60  # lines


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with serving_in_thread(OpenAIServer(default=llm_and_embedder(cities, slow_s=0.02))) as started:
        yield started


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.txt"
    path.write_text("".join(f"question {i}\n" for i in range(1, COUNT + 1)))
    return path


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def each_once(path: Path) -> None:
    """Check that the results have one line per question, with its own answer."""
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert sorted(row["line"] for row in rows) == list(range(1, COUNT + 1))
    assert all(row["result"]["num_samples"] == 5 for row in rows)


def test_killed_service_is_restarted(
    server: OpenAIServer, questions: Path, results: Path, tmp_path: Path
) -> None:
    port = free_port()
    command = Command(tmp_path, {"EIGENCAL_URL": f"http://127.0.0.1:{port}"})
    database = f"sqlite:///{tmp_path / 'store.db'}"
    arguments = ("score", "--file", questions, "--out", results)
    with service(database, server, tmp_path, port=str(port)) as first:
        with command.started(*arguments) as scoring:
            until(lambda: lines(results) >= KILLED_AFTER or scoring.poll() is not None)
            first.process.kill()
            first.process.wait()
            assert lines(results) < COUNT, "it was killed under way"
            with service(database, server, tmp_path, port=str(port)):
                _, output = scoring.communicate(timeout=300)
    assert scoring.returncode == 0, output.decode()
    assert b"scored: 500, errors: 0, left: 0" in output
    each_once(results)


def test_killed_command_is_run_again(
    server: OpenAIServer, questions: Path, results: Path, tmp_path: Path
) -> None:
    arguments = ("score", "--file", questions, "--out", results)
    with service(f"sqlite:///{tmp_path / 'store.db'}", server, tmp_path) as running:
        command = Command(tmp_path, {"EIGENCAL_URL": str(running.http.base_url)})
        with command.started(*arguments) as scoring:
            until(lambda: lines(results) >= KILLED_AFTER or scoring.poll() is not None)
            scoring.send_signal(signal.SIGKILL)
            scoring.wait()
        kept = results.read_bytes()
        kept = kept[: kept.rindex(b"\n") + 1]
        num_kept = kept.count(b"\n")
        assert KILLED_AFTER <= num_kept < COUNT, "it was killed under way"
        results.write_bytes(kept + b'{"line": 499, "id": null, "requ')  # in the middle of a line
        done = command(*arguments)
        assert done.code == 0, done.err
        assert f"{num_kept} of {COUNT} are done already" in done.err
        each_once(results)
        assert results.read_bytes().startswith(kept), "what was done stays as it was"
        # At most once per run. There is no exact bound on the sum: at the kill, the service may have scored
        # any number of questions with lines that the command has not read yet.
        times = Counter(asked(server))
        assert max(times.values()) <= 2
        done_before = {f"question {json.loads(row)['line']}" for row in kept.splitlines()}
        assert {times[prompt] for prompt in done_before} == {1}, "what was done is not asked again"
        again = command(*arguments)
        assert (again.code, Counter(asked(server))) == (0, times)
    each_once(results)
