"""Candidates and decisions over HTTP, with a deciding calibration in a real store."""

import json
import math
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.api.bodies import parse
from service.app import create_app, serving_of
from service.calibration.calibration import Calibration, caller_fingerprint, service_fingerprint
from service.errors import InvalidRequest
from service.scoring.request import ScoreRequest, to_command
from service.scoring.score import Target
from service.settings import Settings
from service.spectral.evidence import EvidenceMap
from tests.support.calibrations import add, calibration
from tests.support.decisions import selector
from tests.support.evidence import TellingLLM, by_evidence
from tests.support.fakes import FakeEmbedder
from tests.support.live import served

DIMENSION = 8
APART = {"answer 0": np.eye(DIMENSION)[0], "another thing": np.eye(DIMENSION)[1]}
# As the settings have it: few-shot text stops prompts at a newline.
SERVING = serving_of(Settings())
Served = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


def drawn_here() -> Calibration:
    """Return an evidence calibration for answers of `TellingLLM`; it decides for one and three answers."""
    request = SERVING.request(prompt="question 0")
    wanted = service_fingerprint(
        TellingLLM().identity(request), request.sampling, FakeEmbedder(DIMENSION).identity
    )
    selectors = {m: selector(EvidenceMap(1.0, 0.0, 1.0)) for m in (1, 3)}
    return by_evidence(fingerprint=wanted, selectors=selectors)


def drawn_by_callers() -> Calibration:
    """Return a calibration for answers labelled `mine`; it decides for three answers."""
    wanted = caller_fingerprint("mine", FakeEmbedder(DIMENSION).identity)
    return replace(calibration(), fingerprint=wanted, selectors={3: selector()})


@pytest.fixture
def started(tmp_path: Path) -> Served:
    """Return a factory of clients of a service on its own port; its arguments are settings."""

    @asynccontextmanager
    async def start(**set_: Any) -> AsyncIterator[httpx.AsyncClient]:
        llm = TellingLLM(told={"question 0": math.log(0.75)})
        app = create_app(
            Settings(data_dir=tmp_path, **set_), llm=llm, embedder=FakeEmbedder(DIMENSION, vectors=APART)
        )
        async with served(app) as port:
            store = app.state.admin.calibrations
            for calibration_ in (drawn_here(), drawn_by_callers()):
                await add(store, calibration_, {"version": 1})
                await store.activate(calibration_.id)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
                yield http

    return start


async def answered(http: httpx.AsyncClient, **sent: Any) -> dict[str, Any]:
    response = await http.post("/score", json=sent)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body | {"headers": response.headers}


# g = u = 0.25, for the unanimous answer and for texts orthogonal to it.
LIKELY, UNLIKELY = 0.75 + 0.25 / DIMENSION, 0.25 / DIMENSION


async def test_candidate_is_judged_and_gets_a_decision(started: Served) -> None:
    request = {"prompt": "question 0", "effort": "low", "target_error": 0.2}
    async with started() as http:
        same = await answered(http, **request, candidate="answer 0")
        none = await answered(http, **request)
        plain = await answered(http, prompt="question 0", effort="low")
        sure = await answered(http, **request, confidence=0.95)
    assert same["candidate"] == pytest.approx(
        {"probability": LIKELY, "mode": 0, "probability_correct": LIKELY}
    )
    decision = {"action": "answer", "target_error": 0.2, "confidence": 0.9, "threshold": 0.5, "coverage": 0.6}
    reason = (
        "Let it through. It is right with a probability of 0.781. From 0.500 on, at most 20 % of the answers "
        "let through are wrong (with 3 answers, kept by 90 % of calibrations made like this one)."
    )
    # The default target is 0.2.
    assert same["decision"] == none["decision"] == plain["decision"] == {**decision, "reason": reason}
    assert none["candidate"] is None
    assert none["probability_correct"] == pytest.approx(LIKELY)
    assert plain["candidate"] is None
    # The header about the candidate comes before those about the samples.
    about_text = ["id", "answer", "probability_correct", "rank_score", "candidate", "decision"]
    assert list(same)[:7] == [*about_text, "lambda_max"]
    assert sure["decision"]["confidence"] == 0.95
    assert same["warnings"] == none["warnings"] == plain["warnings"] == []
    assert same["headers"]["x-decision"] == "answer"
    assert same["headers"]["x-probability-correct"] == f"{LIKELY:.6f}"
    assert plain["headers"]["x-decision"] == "answer"
    assert same["headers"]["x-candidate-probability"] == f"{LIKELY:.6f}"
    assert "x-candidate-probability" not in plain["headers"]
    assert plain["headers"]["x-probability-correct"] == f"{LIKELY:.6f}"


async def test_the_decision_and_its_headers_are_about_the_candidate(started: Served) -> None:
    request = {"prompt": "question 0", "effort": "low", "target_error": 0.2, "candidate": "another thing"}
    async with started() as http:
        body = await answered(http, **request)
    assert body["probability_correct"] == pytest.approx(LIKELY)
    assert body["candidate"] == pytest.approx(
        {"probability": UNLIKELY, "mode": None, "probability_correct": None}
    )
    assert (body["decision"]["action"], body["decision"]["threshold"]) == ("abstain", 0.5)
    assert body["headers"]["x-decision"] == "abstain"
    assert "x-probability-correct" not in body["headers"]
    assert [warning["code"] for warning in body["warnings"]] == ["unsupported_candidate"]


async def test_single_answer_and_caller_samples_are_judged(started: Served) -> None:
    async with started() as http:
        body = await answered(
            http, prompt="question 0", num_samples=1, candidate="answer 0", target_error=0.2
        )
        own = await answered(
            http, samples=["a", "a", "a"], source_label="mine", candidate=" a\n", target_error=0.37
        )
    assert (body["num_samples"], body["candidate"]["mode"]) == (1, 0)
    assert body["decision"]["action"] == "answer"
    assert own["candidate"]["probability"] == pytest.approx(own["lambda_max"])
    assert own["decision"].pop("reason").startswith("Let it through")
    assert own["decision"] == {
        "action": "answer",
        "target_error": 0.37,
        "confidence": 0.9,
        "threshold": 0.0,
        "coverage": 1.0,
    }


async def test_unreachable_target_or_missing_model_abstains_with_a_warning(
    started: Served,
) -> None:
    async with started() as http:
        far = await answered(http, prompt="question 0", num_samples=3, target_error=0.01)
        without = await answered(http, prompt="question 0", num_samples=2, target_error=0.2, candidate="x")
        raw = await answered(
            http, prompt="question 0", num_samples=3, target_error=0.2, calibration="none", candidate="x"
        )
        unasked = await answered(http, prompt="question 0", num_samples=2, candidate="x")
    assert [warning["code"] for warning in far["warnings"]] == ["target_unreachable"]
    assert "10.8 %" in far["warnings"][0]["message"]
    assert far["decision"]["reason"].startswith(
        "Hold it back. The service cannot promise that at most 1 % of"
    )
    assert "with 3 answers" in far["decision"]["reason"]
    assert far["decision"]["reason"].endswith("10.8 %. Use this target, or calibrate on more rows.")
    assert far["probability_correct"] == pytest.approx(LIKELY)
    for body in (far, without, raw):
        decision = body["decision"]
        assert (decision["action"], decision["threshold"], decision["coverage"]) == ("abstain", None, 0)
        assert body["headers"]["x-decision"] == "abstain"
    for body in (without, raw):
        assert [warning["code"] for warning in body["warnings"]] == ["no_correctness_model"]
        assert body["probability_correct"] is body["candidate"]["probability_correct"] is None
        assert "x-probability-correct" not in body["headers"]
    assert "for 2 answers" in without["warnings"][0]["message"]
    assert re.search(
        r"its report, /calibrations/cal_\w+/report, gives the reason", without["warnings"][0]["message"]
    )
    assert "no calibration" in raw["warnings"][0]["message"]
    assert (unasked["warnings"], unasked["decision"]) == ([], None)


async def test_settings_can_request_decisions_for_all_scores(started: Served) -> None:
    request = {"prompt": "question 0", "effort": "low"}
    async with started(target_error=0.2) as http:
        plain = await answered(http, **request)
        own = await answered(http, **request, target_error=0.3)
        surer = await answered(http, **request, confidence=0.95)
    made = [
        (score["decision"]["target_error"], score["decision"]["confidence"]) for score in (plain, own, surer)
    ]
    assert made == [(0.2, 0.9), (0.3, 0.9), (0.2, 0.95)]


REFUSED: list[dict[str, Any]] = [
    {"target_error": 0},
    {"target_error": 1},
    {"target_error": -0.1},
    {"target_error": "0.2"},
    {"target_error": 0.2, "confidence": 1},
    {"target_error": 0.2, "confidence": 0.0},
    {"candidate": 7},
    {"candidate": "x" * 200_001},
    {"candidate": None},
]


async def test_invalid_target_or_candidate_is_refused(started: Served) -> None:
    async with started() as http:
        for bad in REFUSED:
            response = await http.post("/score", json={"samples": ["a", "b"], **bad})
            assert (response.status_code, response.json()["code"]) == (422, "invalid_request"), bad


async def test_items_of_a_batch_are_judged_like_single_requests(started: Served) -> None:
    request = {"prompt": "question 0", "effort": "low", "candidate": "answer 0", "target_error": 0.2}
    items = [request, {**request, "deadline_ms": 20_000}, {"prompt": "question 0", "confidence": 9}]
    async with started() as http:
        lines = (await http.post("/score/batch", json={"items": items})).text.splitlines()
        single = await answered(http, **request)
    results = {item["index"]: item for item in map(json.loads, lines)}
    for index in (0, 1):
        for name in ("candidate", "probability_correct", "decision"):
            assert results[index]["result"][name] == single[name]
    assert results[2]["error"]["code"] == "invalid_request"


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(st.floats(0, 1, exclude_min=True, exclude_max=True), st.none() | st.floats(0, 1))
def test_target_of_the_request_overrides_the_settings(error: float, confidence: float | None) -> None:
    sent: dict[str, Any] = {"samples": ["a", "b"], "target_error": error}
    if confidence is not None:
        sent["confidence"] = confidence
    if confidence in (0.0, 1.0):
        with pytest.raises(InvalidRequest):
            parse(json.dumps(sent).encode(), ScoreRequest)
        return
    body = parse(json.dumps(sent).encode(), ScoreRequest)
    assert to_command(body, SERVING, None).target == Target(error, confidence or 0.9, by_caller=True)
