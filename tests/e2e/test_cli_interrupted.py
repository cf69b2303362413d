"""Ctrl-C and Ctrl-D on the command line, with a process in a terminal and a real service."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.in_a_terminal import terminal
from tests.support.openai_server import Exchange, OpenAIServer, serving_in_thread
from tests.support.services import Hold, asked, cities, llm_and_embedder, questions, service

ROWS = 40


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    path = tmp_path / "dev.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in questions(ROWS)))
    return path


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Command]:
    """Return the command with an LLM that starts an answer to `question 9` and never ends it."""

    async def draw(exchange: Exchange) -> None:
        if not (exchange.body.get("stream") and exchange.body["messages"][-1]["content"].endswith("9")):
            await cities(exchange)
            return
        await exchange.start_stream()
        delta = {"index": 0, "delta": {"role": "assistant", "content": "It begins"}}
        await exchange.event({"id": "x", "model": "m", "choices": [delta]})
        await exchange.until_disconnect()

    with serving_in_thread(OpenAIServer(default=llm_and_embedder(draw))) as server:
        with service(f"sqlite:///{tmp_path / 'store.db'}", server, tmp_path) as running:
            yield Command(tmp_path, {"EIGENCAL_URL": str(running.http.base_url)})


def test_ctrl_c_stops_an_answer_and_ctrl_d_ends_the_chat(slow: Command) -> None:
    with terminal(slow, "chat") as chat:
        chat.until("> ")
        chat.types("question 9\n")
        chat.until("It begins")
        chat.types("\x03")
        chat.until("(stopped; this turn is forgotten)")
        chat.until("> ")
        chat.types("question 1\n")
        assert "lambda_max" in chat.until("]")
        chat.until("> ")
        chat.types("\x04")
        assert chat.process.wait(60) == 0
    assert "Traceback" not in chat.said


def test_ctrl_c_at_the_prompt_ends_the_chat(slow: Command) -> None:
    with terminal(slow, "chat") as chat:
        chat.until("> ")
        chat.interrupts()
        chat.until("eigencal: stopped")
        assert chat.process.wait(60) == 130


def test_ctrl_c_stops_watching_but_not_the_job(tmp_path: Path, dev: Path) -> None:
    hold = Hold(after=5)
    with serving_in_thread(OpenAIServer(default=llm_and_embedder(cities, hold=hold))) as server:
        with service(f"sqlite:///{tmp_path / 'store.db'}", server, tmp_path) as running:
            command = Command(tmp_path, {"EIGENCAL_URL": str(running.http.base_url)})
            with command.started("calibrate", dev, "--watch") as watching:
                assert watching.stderr is not None
                assert b"sampling" in next(line for line in watching.stderr if b"sampling" in line)
                watching.send_signal(signal.SIGINT)
                rest = watching.stderr.read().decode()
                assert watching.wait(60) == 130
            job = running.http.get("/jobs").json()[0]["id"]
            assert f"the job goes on: eigencal jobs {job} --watch" in rest
            hold.go_on()
            done = command("jobs", job, "--watch")
            assert done.code == 0, done.err
            assert "succeeded" in done.out
            assert len(asked(server)) == ROWS


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Command]:
    """Return the command with a service that has an LLM without answers."""
    behaviour = llm_and_embedder(cities, hold=Hold(after=0))
    with serving_in_thread(OpenAIServer(default=behaviour)) as server:
        with service(f"sqlite:///{tmp_path / 'store.db'}", server, tmp_path) as running:
            yield Command(tmp_path, {"EIGENCAL_URL": str(running.http.base_url)})


def test_cancelling_a_watched_job(held: Command, dev: Path) -> None:
    with held.started("calibrate", dev, "--watch") as watching:
        assert watching.stderr is not None
        next(line for line in watching.stderr if b"sampling" in line)
        job = held("jobs", "--json").json[0]["id"]
        assert held("jobs", job, "--cancel").code == 0
        rest = watching.stderr.read().decode()
        assert watching.wait(60) == 9
    assert "cancelled" in rest.splitlines()[-1]


def test_ctrl_c_keeps_finished_results(tmp_path: Path) -> None:
    file, results = tmp_path / "q.txt", tmp_path / "results.jsonl"
    file.write_text("question 1\n")
    away = {"EIGENCAL_URL": "http://127.0.0.1:9"}
    with Command(tmp_path).started("score", "--file", file, "--out", results, **away) as scoring:
        assert scoring.stderr is not None
        assert b"Waiting for it" in scoring.stderr.readline()
        scoring.send_signal(signal.SIGINT)
        rest = scoring.stderr.read().decode()
        assert scoring.wait(60) == 130
    assert rest.splitlines()[-1] == "eigencal: stopped"
    assert "left: 1" in rest
    assert "Traceback" not in rest
