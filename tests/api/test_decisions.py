"""Candidates and decisions over HTTP, with a deciding calibration in a real store."""

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

from service.app import create_app, serving_of
from service.calibration.calibration import Calibration, caller_fingerprint, service_fingerprint
from service.settings import Settings
from service.spectral.evidence import EvidenceMap
from tests.support.calibrations import add, calibration
from tests.support.decisions import selector
from tests.support.evidence import TellingLLM, by_evidence
from tests.support.fakes import FakeEmbedder
from tests.support.live import in_process

DIMENSION = 8
APART = {"answer 0": np.eye(DIMENSION)[0], "another thing": np.eye(DIMENSION)[1]}
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
        async with in_process(app) as http:
            store = app.state.admin.calibrations
            for calibration_ in (drawn_here(), drawn_by_callers()):
                await add(store, calibration_, {"version": 1})
                await store.activate(calibration_.id)
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
    request = {"prompt": "question 0", "num_samples": 3, "target_error": 0.2}
    async with started() as http:
        same = await answered(http, **request, candidate="answer 0")
        none = await answered(http, **request)
        plain = await answered(http, prompt="question 0", num_samples=3)
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
    # The fields about the text come before those about the samples.
    about_text = ["id", "answer", "probability_correct", "candidate", "self_check", "decision"]
    assert list(same)[:7] == [*about_text, "lambda_max"]
    assert sure["decision"]["confidence"] == 0.95
    assert same["warnings"] == none["warnings"] == plain["warnings"] == []
    for body in (same, plain):
        assert body["headers"]["x-decision"] == "answer"
        assert body["headers"]["x-probability-correct"] == f"{LIKELY:.6f}"


async def test_the_decision_and_its_headers_are_about_the_candidate(started: Served) -> None:
    request = {"prompt": "question 0", "num_samples": 3, "target_error": 0.2, "candidate": "another thing"}
    async with started() as http:
        body = await answered(http, **request)
    assert body["probability_correct"] == pytest.approx(LIKELY)
    assert body["candidate"] == pytest.approx(
        {"probability": UNLIKELY, "mode": None, "probability_correct": None}
    )
    assert (body["decision"]["action"], body["decision"]["threshold"]) == ("abstain", 0.5)
    assert body["headers"]["x-decision"] == "abstain"
    assert "x-probability-correct" not in body["headers"]
    assert "None of the answers drawn agrees with it" in body["decision"]["reason"]
    assert body["warnings"] == []


async def test_single_answer_and_caller_samples_are_judged(started: Served) -> None:
    async with started() as http:
        sent = {"prompt": "question 0", "num_samples": 1, "candidate": "answer 0"}
        body = await answered(http, **sent, target_error=0.2)
        sent = {"samples": ["a", "a", "a"], "source_label": "mine", "candidate": " a\n"}
        own = await answered(http, **sent, target_error=0.37)
    assert (body["num_samples"], body["candidate"]["mode"]) == (1, 0)
    assert body["decision"]["action"] == "answer"
    assert own["candidate"]["probability"] == pytest.approx(own["lambda_max"])
    assert own["decision"].pop("reason").startswith("Let it through")
    promised = {"target_error": 0.37, "confidence": 0.9, "threshold": 0.0, "coverage": 1.0}
    assert own["decision"] == {"action": "answer"} | promised


async def test_calibration_that_cannot_decide_abstains_with_a_reason(started: Served) -> None:
    candidate = {"prompt": "question 0", "candidate": "x"}
    async with started() as http:
        far = await answered(http, prompt="question 0", num_samples=3, target_error=0.01)
        without = await answered(http, **candidate, num_samples=2, target_error=0.2)
        raw = await answered(http, **candidate, num_samples=3, target_error=0.2, calibration="none")
        unasked = await answered(http, **candidate, num_samples=2)
    reason = far["decision"]["reason"]
    assert reason.startswith("Hold it back. The service cannot promise that at most 1 % of")
    assert "with 3 answers" in reason and "10.8 %" in reason
    assert far["probability_correct"] == pytest.approx(LIKELY)
    for body in (far, without, unasked):
        decision = body["decision"]
        assert (decision["action"], decision["threshold"], decision["coverage"]) == ("abstain", None, 0)
        assert body["headers"]["x-decision"] == "abstain"
    for body in (without, raw, unasked):
        assert body["probability_correct"] is body["candidate"]["probability_correct"] is None
        assert "x-probability-correct" not in body["headers"]
    for body in (without, unasked):
        assert re.search(r"for 2 answers.*/calibrations/cal_\w+/report", body["decision"]["reason"])
    assert (raw["decision"], unasked["warnings"]) == (None, [])
    assert "x-decision" not in raw["headers"]


async def test_settings_can_request_decisions_for_all_scores(started: Served) -> None:
    request = {"prompt": "question 0", "num_samples": 3}
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
