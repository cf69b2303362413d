"""`eigencal chat`: by a pipe, and in a terminal with its keys."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Here
from tests.support.command import Command
from tests.support.in_a_terminal import terminal
from tests.support.openai_server import Exchange, OpenAIServer, serving_in_thread
from tests.support.services import asked, cities, llm_and_embedder, service

UNCERTAINTY = "[share of the meaning "


def test_every_answer_says_how_uncertain_it_is(here: Here, llm: OpenAIServer) -> None:
    count = len(asked(llm))
    done = here("chat", stdin="question 1\n\nquestion 2\n/quit\nquestion 3\n")
    assert done.code == 0, done.err
    first, told, second, again = done.out.splitlines()
    assert first in ("Paris", "Lyon", "Nice", "Lille", "Metz")
    assert second in ("Paris", "Lyon", "Nice", "Lille", "Metz")
    assert told.startswith(UNCERTAINTY)
    assert again.startswith(UNCERTAINTY)
    assert "question 3" not in asked(llm)[count:], "after /quit nothing is asked"
    assert all(line.startswith("note: ") for line in done.err.splitlines())


def test_the_conversation_goes_along(here: Here, llm: OpenAIServer) -> None:
    done = here("chat", "--system", "Be brief.", "--json", stdin="question 1\nquestion 2\n/new\nquestion 3")
    assert done.code == 0, done.err
    first, _, _ = done.rows
    chats = {body["messages"][-1]["content"]: body["messages"] for body in llm.bodies if body.get("stream")}
    turn = {"role": "user", "content": "question 1"}, {"role": "assistant", "content": first["answer"]}
    system = {"role": "system", "content": "Be brief."}
    assert chats["question 2"] == [system, *turn, {"role": "user", "content": "question 2"}]
    assert chats["question 3"] == [system, {"role": "user", "content": "question 3"}]
    assert first["uncertainty"]["status"] == "scored"


def test_a_turn_that_fails_is_told_and_forgotten(here: Here) -> None:
    done = here("chat", "--model", "scripted-model", stdin="no number\n", EIGENCAL_KEY="another")
    assert done.code == 4
    assert done.err.startswith("eigencal: bad_key: ")


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Command]:
    """Return the command before an LLM that begins an answer to `question 9` and never ends it."""

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


def test_a_score_that_is_still_made_is_waited_for(tmp_path: Path) -> None:
    with serving_in_thread(OpenAIServer(default=llm_and_embedder(cities))) as server:
        settings = {"chat_mode": "async"}  # every answer goes out before its score
        with service(f"sqlite:///{tmp_path / 'store.db'}", server, tmp_path, **settings) as running:
            command = Command(tmp_path, {"EIGENCAL_URL": str(running.http.base_url)})
            done = command("chat", stdin="question 1\nquestion 2\n")
    assert done.code == 0, done.err
    told = done.out.splitlines()[1::2]
    assert len(told) == 2
    assert all(line.startswith(UNCERTAINTY) and line.endswith("raw]") for line in told)
    assert done.err.startswith("note: ") and "calibrat" in done.err
    assert done.err.count("\n") == 1, "why it is raw is told once"


def test_ctrl_c_ends_an_answer_and_ctrl_d_the_chat(slow: Command) -> None:
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
        chat.interrupts()
        chat.until("Ctrl-C again leaves")
        chat.until("> ")
        chat.types("\x04")
        assert chat.process.wait(60) == 0
    assert "Traceback" not in chat.said


def test_ctrl_c_twice_leaves(slow: Command) -> None:
    with terminal(slow, "chat") as chat:
        chat.until("> ")
        chat.interrupts()
        chat.until("Ctrl-C again leaves")
        chat.until("> ")
        chat.interrupts()
        chat.until("eigencal: stopped")
        assert chat.process.wait(60) == 130
