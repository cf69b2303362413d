"""`eigencal chat` with piped input. tests/e2e has the tests in a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Here, in_process
from tests.support.fakes import FakeEmbedder
from tests.support.in_thread import serving_app
from tests.support.openai_server import (
    Behaviour,
    Exchange,
    OpenAIServer,
    answers,
    draws_and,
    pieces,
    serving_in_thread,
    status,
)
from tests.support.responses import events, message, response, wire
from tests.support.services import asked
from tests.support.sqlite_store import SqliteStore

UNCERTAINTY = ("[P(right) 0.", "[share of the meaning ")


@contextmanager
def own_service(folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Iterator[Here]:
    """Return the command with a service that has these settings."""
    parts = {"llm": None, "embedder": FakeEmbedder(16), "store": SqliteStore()}
    with serving_app(folder, **parts, **settings) as url:
        yield in_process(folder, url, monkeypatch)


def test_each_answer_is_shown_with_its_uncertainty(here: Here, llm: OpenAIServer) -> None:
    count = len(asked(llm))
    done = here("chat", stdin="question 1\n\nquestion 2\n/quit\nquestion 3\n")
    assert done.code == 0, done.err
    first, first_score, second, second_score = done.out.splitlines()
    assert first in ("Paris", "Lyon", "Nice", "Lille", "Metz")
    assert second in ("Paris", "Lyon", "Nice", "Lille", "Metz")
    assert first_score.startswith(UNCERTAINTY)
    assert second_score.startswith(UNCERTAINTY)
    assert "question 3" not in asked(llm)[count:], "after /quit nothing is asked"
    assert all(line.startswith("note: ") for line in done.err.splitlines())


def test_conversation_is_sent_with_each_turn(here: Here, llm: OpenAIServer) -> None:
    done = here("chat", "--system", "Be brief.", "--json", stdin="question 1\nquestion 2\n/new\nquestion 3")
    assert done.code == 0, done.err
    first, _, _ = done.rows
    chats = {body["messages"][-1]["content"]: body["messages"] for body in llm.bodies if body.get("stream")}
    turn = {"role": "user", "content": "question 1"}, {"role": "assistant", "content": first["answer"]}
    system = {"role": "system", "content": "Be brief."}
    assert chats["question 2"] == [system, *turn, {"role": "user", "content": "question 2"}]
    assert chats["question 3"] == [system, {"role": "user", "content": "question 3"}]
    assert first["uncertainty"]["status"] == "scored"


def test_doubtful_claims_are_listed_below_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = draws_and(
        answers("It is old. The tower is 330 m high."), answers("The tower is new. It is old.")
    )
    with serving_in_thread(OpenAIServer(default=scripted)) as llm:
        settings = {"llm_url": llm.url, "num_samples": 3, "claims_from_characters": 9}
        with own_service(tmp_path, monkeypatch, **settings) as here:
            done = here("chat", stdin="How high?\n")
    assert done.code == 0, done.err
    answer, figures, claim, support = done.out.splitlines()
    assert answer == "It is old. The tower is 330 m high." and figures.startswith(UNCERTAINTY)
    assert (claim, support) == ("? The tower is 330 m high.", "  0 agree, 3 silent, 0 differ")


def test_failed_turn_is_reported_and_dropped(here: Here) -> None:
    done = here("chat", "--model", "scripted-model", stdin="no number\n", EIGENCAL_KEY="another")
    assert done.code == 4
    assert done.err.startswith("eigencal: bad_key: ")


def test_pending_score_is_awaited(llm: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Answers are returned before their scores.
    settings = {"chat_mode": "async", "llm_url": llm.url, "num_samples": 5}
    with own_service(tmp_path, monkeypatch, **settings) as here:
        done = here("chat", stdin="question 1\nquestion 2\n")
    assert done.code == 0, done.err
    first, second = done.out.splitlines()[1::2]
    for line in (first, second):
        assert line.startswith(UNCERTAINTY) and line.endswith("raw]")
    assert done.err.startswith("note: ") and "calibrat" in done.err
    assert done.err.count("\n") == 2, "each note is told once"


# The chat by /v1/responses


@contextmanager
def by_responses(
    own: Behaviour, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Here, OpenAIServer]]:
    """Return the command, and the LLM server that answers calls of /v1/responses with `own`."""

    async def behave(exchange: Exchange) -> None:
        await (own if exchange.path == "/v1/responses" else answers("Paris"))(exchange)

    with serving_in_thread(OpenAIServer(default=behave)) as llm:
        with own_service(folder, monkeypatch, llm_url=llm.url, num_samples=3) as here:
            yield here, llm


def test_responses_are_streamed_with_the_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = pieces(*map(wire, events(message("Paris"))))
    with by_responses(own, tmp_path, monkeypatch) as (here, llm):
        done = here("chat", "--responses", "--system", "Be brief.", stdin="question 1\nquestion 2\n")
        calls = [request.body for request in llm.requests if request.path == "/v1/responses"]
    assert done.code == 0, done.err
    first, first_score, second, second_score = done.out.splitlines()
    assert (first, second) == ("Paris", "Paris")
    assert first_score.startswith(UNCERTAINTY) and second_score.startswith(UNCERTAINTY)
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "question 1"}]
    answered = {"role": "assistant", "content": "Paris"}
    assert [call["input"] for call in calls] == [
        turns,
        [*turns, answered, {"role": "user", "content": "question 2"}],
    ]


def failed(**error: str) -> bytes:
    return wire({"type": "response.failed", "response": response(status="failed", error=error)})


@pytest.mark.parametrize(
    ("own", "code", "said"),
    [
        (pieces(failed(code="server_error", message="out of memory")), 7, "server_error: out of memory"),
        (pieces(wire({"type": "error", "code": "busy", "message": "too many"})), 7, "busy: too many"),
        (pieces(*map(wire, events(message("Paris"))[:-1])), 3, "`response.completed`"),
        (status(404, {"error": {"message": "no such route", "code": "not_found"}}), 5, "no such route"),
        (pieces(b"data: []\n\n"), 3, "not as OpenAI's API has it"),
    ],
    ids=["failed", "error", "cut", "no route", "unreadable"],
)
def test_responses_that_fail_are_errors(
    own: Behaviour, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with by_responses(own, tmp_path, monkeypatch) as (here, _):
        done = here("chat", "--responses", stdin="question 1\n")
    assert done.code == code, done.err
    assert said in done.err
