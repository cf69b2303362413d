"""`eigencal chat` with piped input. tests/e2e has the tests in a terminal."""

from pathlib import Path

import pytest

from tests.cli.conftest import Here, in_process
from tests.support.fakes import FakeEmbedder
from tests.support.in_thread import serving_app
from tests.support.openai_server import OpenAIServer, answers, draws_and, serving_in_thread
from tests.support.services import asked
from tests.support.sqlite_store import SqliteStore

UNCERTAINTY = ("[P(right) 0.", "[share of the meaning ")


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
    parts = {"llm": None, "embedder": FakeEmbedder(16), "store": SqliteStore()}
    with serving_in_thread(OpenAIServer(default=scripted)) as llm:
        settings = {"llm_url": llm.url, "num_samples": 3, "claims_from_characters": 9}
        with serving_app(tmp_path, **parts, **settings) as url:
            done = in_process(tmp_path, url, monkeypatch)("chat", stdin="How high?\n")
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
    parts = {"llm": None, "embedder": FakeEmbedder(16), "store": SqliteStore()}
    with serving_app(tmp_path, **parts, **settings) as url:
        done = in_process(tmp_path, url, monkeypatch)("chat", stdin="question 1\nquestion 2\n")
    assert done.code == 0, done.err
    lines = done.out.splitlines()[1::2]
    assert len(lines) == 2
    assert all(
        line.startswith(UNCERTAINTY) and line.endswith("by the default calibration]") for line in lines
    )
    assert done.err.startswith("note: ") and "calibrat" in done.err
    assert done.err.count("\n") == 2, "each note is told once"
