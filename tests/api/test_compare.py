"""Answers compared by the LLM that drew them, over HTTP with fakes."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from service.app import serving_of
from service.calibration.calibration import caller_fingerprint, service_fingerprint
from service.claims.comparison import compared_by
from service.errors import LLMError, LLMUnavailable
from service.llm.client import LLM
from service.scoring import scorer as scorers
from service.scoring.score import ScoreCommand
from service.scoring.scorer import Scorer
from service.settings import Settings
from tests.api.conftest import Client
from tests.support.calibrations import Active
from tests.support.comparing import ComparingLLM
from tests.support.evidence import by_evidence
from tests.support.fakes import FakeEmbedder
from tests.support.openai_server import OpenAIServer, answers

PROMPT = "Which planet is the largest?"
ANSWERS = ("Jupiter.", "It is Jupiter.", "Saturn is.")
SERVING = serving_of(Settings())


@pytest.fixture
def embedder() -> FakeEmbedder:
    return FakeEmbedder(64, kernel="facts")


def same_planet(first: str, second: str) -> float:
    return 0.9 if ("Jupiter" in first) == ("Jupiter" in second) and "soup" not in first else 0.1


@pytest.fixture
def llm() -> ComparingLLM:
    return ComparingLLM(same_planet, answers={PROMPT: ANSWERS})


async def scored(client: Client, **body: object) -> dict[str, Any]:
    async with client() as http:
        reply = await http.post("/score", json={"prompt": PROMPT, "num_samples": 3, **body})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def codes(score: dict[str, Any]) -> Sequence[str]:
    return [one["code"] for one in score["warnings"]]


async def test_the_llm_tells_meanings_apart(client: Client, llm: ComparingLLM) -> None:
    by_words = await scored(client)
    assert (by_words["kernel"], llm.compared) == ("facts", [])
    by_llm = await scored(client, compare="llm")
    assert by_llm["kernel"] == "llm"
    assert by_llm["lambda_max"] > by_words["uncalibrated"]["lambda_max"]
    assert by_llm["timings_ms"]["compare"] >= 0
    tokens = [one["usage"]["prompt_tokens"] for one in (by_words, by_llm)]
    assert tokens[1] == tokens[0] + 8 * len(llm.compared)


async def test_a_candidate_is_compared_first(client: Client, llm: ComparingLLM) -> None:
    score = await scored(client, compare="llm", candidate="The biggest one, Jupiter of course.")
    wrong = await scored(client, compare="llm", candidate="The biggest one, Saturn of course.")
    assert score["candidate"]["probability"] > wrong["candidate"]["probability"]


@pytest.mark.parametrize(
    "error", [LLMUnavailable("down"), LLMError("logprobs are not supported", llm_status=400)]
)
async def test_without_the_llm_the_embeddings_compare(
    client: Client, llm: ComparingLLM, error: Exception
) -> None:
    async with client() as http:
        sent = {"samples": list(ANSWERS), "prompt": PROMPT}
        expected = (await http.post("/score", json=sent)).json()
        llm.fail_questions = [error] * 100
        score = (await http.post("/score", json={**sent, "compare": "llm"})).json()
    assert codes(score)[0] == "comparison_missing"
    assert (score["kernel"], score["lambda_max"]) == ("facts", expected["lambda_max"])


def active(llm: ComparingLLM) -> Active:
    """Return an active calibration with answers compared by this LLM."""
    request = SERVING.request(prompt=PROMPT)
    comparing = compared_by(FakeEmbedder(64, kernel="facts").identity, "fake-llm")
    fingerprint = service_fingerprint(llm.identity(request), request.sampling, comparing)
    return Active(by_evidence(fingerprint=fingerprint))


async def test_a_calibration_serves_what_it_was_fitted_with(client: Client, llm: ComparingLLM) -> None:
    async with client(calibrations=active(llm)) as http:
        sent = {"prompt": PROMPT, "num_samples": 3}
        by_llm = (await http.post("/score", json={**sent, "compare": "llm"})).json()
        by_words = (await http.post("/score", json=sent)).json()
        llm.model = "another-llm"
        by_another = (await http.post("/score", json={**sent, "compare": "llm"})).json()
    assert (by_llm["calibrated"], by_llm["calibration"]["kernel"]) == (True, "llm")
    assert by_words["calibrated"] is False
    [mismatch] = [one for one in by_another["warnings"] if one["code"] == "calibration_mismatch"]
    assert mismatch["differs"] == ["comparer", "model"]


async def test_a_slow_comparison_is_left_out(
    client: Client, llm: ComparingLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scorers, "MAX_COMPARE_S", 0.05)
    llm.until = asyncio.Event()
    score = await scored(client, compare="llm")
    assert (score["kernel"], codes(score)[0]) == ("facts", "comparison_missing")


async def test_samples_that_agree_need_nobody_to_compare_them(client: Client, llm: ComparingLLM) -> None:
    facts = FakeEmbedder(64, kernel="facts").identity
    made = by_evidence(fingerprint=caller_fingerprint("mine", compared_by(facts, "gpt-x-2024")))
    async with client(calibrations=Active(made)) as http:
        sent = {"samples": ["Jupiter", "Jupiter."], "source_label": "mine", "compare": "llm"}
        score = (await http.post("/score", json=sent)).json()
    assert (score["calibrated"], llm.compared) == (True, [])


async def test_a_text_without_answers_is_judged_by_the_same_calibration(
    client: Client, llm: ComparingLLM
) -> None:
    sent = {"prompt": PROMPT, "num_samples": 0, "candidate": "Jupiter", "candidate_logprob": -0.5}
    async with client(calibrations=active(llm), compare="llm") as http:
        own = (await http.post("/score", json=sent)).json()
    async with client(compare="llm") as http:
        without = (await http.post("/score", json=sent)).json()
    assert own["calibration"]["origin"] == "own"
    assert without["calibration"] is None


async def test_draws_are_compared_before_the_candidate_is_there(llm: ComparingLLM) -> None:
    scorer = Scorer(llm, FakeEmbedder(64, kernel="facts"), Active(), compare="llm")
    drawn = await scorer.draw(ScoreCommand(3, prompt=SERVING.template.prompt(PROMPT)))
    before = set(llm.compared)
    assert {text for pair in before for text in pair} >= set(ANSWERS)
    candidate = "Jupiter, no doubt."
    score = await scorer.finish(drawn, candidate)
    assert score.kernel == "llm"
    assert all(candidate in pair for pair in llm.compared[len(before) :])


async def test_a_chat_is_scored_by_it(client: Client, llm: ComparingLLM) -> None:
    llm.answers[PROMPT] = ("Jupiter.", "It is Jupiter.")
    server = OpenAIServer(default=answers("Jupiter.", model="fake-llm"))
    async with server, client(compare="llm") as http:
        llm.server = LLM(server.url)
        sent = {"messages": [{"role": "user", "content": PROMPT}], "model": "fake-llm"}
        answer = (await http.post("/v1/chat/completions", json=sent)).json()
    assert answer["uncertainty"]["kernel"] == "llm"
