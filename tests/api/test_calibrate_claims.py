"""Calibrating claims over HTTP: rows with verdicts on claims, and scores of claims with the calibration."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest

from service.app import create_app
from service.claims.segments import claims
from service.scoring.claims import claim_logprobs
from service.settings import Settings
from tests.api.test_calibrate_decides import calibrated
from tests.support.comparing import ComparingLLM
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.live import in_process
from tests.support.operator_world import ended, jsonl
from tests.support.reports import FEW

ANSWERS, CLAIMS, DRAWN = 60, 3, 4


def row(number: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return an answer of three claims. Samples repeat right claims more often than wrong ones."""
    right = rng.random(CLAIMS) < 0.6
    claims = [f"Item {number}{name} weighs {number} kilograms." for name in "abc"]
    texts = [
        [text for text, good in zip(claims, right, strict=True) if rng.random() < (0.9 if good else 0.3)]
        for _ in range(DRAWN)
    ]
    tokens = [-0.1 if good else -2.0 for good in right] + rng.normal(0, 0.3, CLAIMS)
    judged = []
    for text, good, value in zip(claims, right, np.minimum(tokens, 0), strict=True):
        logprobs = {"logprob": value - 2, "fact_logprob": value - 1, "least_logprob": value - 1}
        judged.append({"text": text, "correct": bool(good), **logprobs})
    samples = [" ".join([f"Box {number} is closed.", *text_]) for text_ in texts]
    return {"prompt": f"What does box {number} hold?", "samples": samples, "claims": judged}


def rows(count: int = ANSWERS) -> list[dict[str, Any]]:
    rng = np.random.default_rng(7)
    return [row(number, rng) for number in range(count)]


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(data_dir=tmp_path), llm=FakeLLM(), embedder=FakeEmbedder(), resamples=FEW)
    async with in_process(app) as client:
        yield client


async def of_claims(http: httpx.AsyncClient, made: list[dict[str, Any]]) -> dict[str, Any]:
    return await calibrated(http, jsonl(made), unit="claim", activate="always")


def asked(made: dict[str, Any], **more: Any) -> dict[str, Any]:
    text = " ".join(claim["text"] for claim in made["claims"])
    return {"samples": made["samples"], "candidate": text, "prompt": made["prompt"], "claims": True} | more


async def score(http: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    reply = await http.post("/score", json=body)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


async def test_verdicts_on_claims_give_p_correct_and_decisions(http: httpx.AsyncClient) -> None:
    rows_ = rows(ANSWERS + 20)
    claims_ = await of_claims(http, rows_[:ANSWERS])
    assert claims_["fingerprint"]["unit"] == "claim"
    assert claims_["correctness_sample_counts"] == [0, 2, 3, 4]

    right, wrong = list[float](), list[float]()
    for answered_row in rows_[ANSWERS:]:
        score_ = await score(http, asked(answered_row, target_error=0.4))
        assert score_["claims_calibration"]["id"] == claims_["id"]
        assert score_["claims_calibration"]["origin"] == "own"
        for claim, label in zip(score_["claims"], answered_row["claims"], strict=True):
            assert claim["text"] == label["text"]
            if claim["support"]["silent"] == DRAWN:
                assert (claim["probability_correct"], claim["decision"]) == (None, "abstain")
            else:
                (right if label["correct"] else wrong).append(claim["probability_correct"])
                assert claim["decision"] in ("answer", "abstain")
    assert np.mean(right) > np.mean(wrong) + 0.1


async def test_claims_are_judged_by_token_logprobs_without_samples(http: httpx.AsyncClient) -> None:
    rows_ = rows()
    del rows_[0]["claims"][0]["fact_logprob"]
    assert (await of_claims(http, rows_))["correctness_sample_counts"] == [0, 2, 3, 4]
    [row_] = rows(1)
    text = " ".join(claim["text"] for claim in row_["claims"])
    sure, unsure = [{"token": piece, "logprob": value} for piece, value in ((" ", -0.1), (" ", -3.0))]
    tokens = [sure | {"token": text[:-5]}, unsure | {"token": text[-5:]}]
    body = {"prompt": row_["prompt"], "num_samples": 0, "candidate": text, "candidate_logprob": -3.1}
    score_ = await score(http, body | {"candidate_tokens": tokens, "claims": True})
    first, *_, last = score_["claims"]
    assert first["lambda_max"] is None and first["support"] is None
    assert first["least_logprob"] == pytest.approx(-0.1)
    assert last["least_logprob"] == pytest.approx(-3.0)


async def test_report_counts_answers_and_claims_and_exported_rows_can_be_uploaded(
    http: httpx.AsyncClient,
) -> None:
    made = rows()
    claims_ = await of_claims(http, made)
    await _serves_claims_of_its_number_of_answers_alone(http, made[0], claims_["id"])
    report = (await http.get(claims_["links"]["report"])).json()
    data, promises = report["data"], report["correctness"]["promises"]
    assert (data["rows"], data["usable"], data["rows_full"]) == (ANSWERS, ANSWERS, ANSWERS)
    assert data["claims"] == ANSWERS * CLAIMS
    assert "claims let through" in promises[-1]["text"]
    page = await http.get(claims_["links"]["report"], headers={"Accept": "text/html"})
    assert page.status_code == 200 and "claims" in page.text
    exported = (await http.get(f"/calibrations/{claims_['id']}/data")).text.splitlines()
    assert [json.loads(line) for line in exported] == made


async def _serves_claims_of_its_number_of_answers_alone(
    http: httpx.AsyncClient, made: dict[str, Any], calibration_id: str
) -> None:
    score_ = await score(http, asked(made, calibration=calibration_id))
    assert score_["calibration"] is None
    assert score_["claims_calibration"]["id"] == calibration_id
    [mismatch] = [warning for warning in score_["warnings"] if warning["code"] == "calibration_mismatch"]
    assert mismatch["differs"] == ["unit"]
    score_ = await score(http, asked(made, samples=[*made["samples"], "Nobody knows."]))
    assert score_["claims_calibration"] is None
    [mismatch] = [warning for warning in score_["warnings"] if warning["code"] == "calibration_mismatch"]
    assert (calibration_id in mismatch["message"], mismatch["differs"]) == (True, ["num_samples"])
    score_ = await score(http, {"samples": ['{"b": 1}'] * 4, "candidate": '{"b": 1}', "claims": True})
    assert score_["claims_calibration"] is None
    assert score_["claims"][0]["probability_correct"] is None


async def test_sampled_answer_is_judged_by_the_other_samples(http: httpx.AsyncClient) -> None:
    wrong, right = "It weighs 9 kilograms.", "It weighs 7 kilograms."
    score_ = await score(http, {"samples": [wrong, right, right], "claims": True, "calibration": "none"})
    [claim] = score_["claims"]
    assert (claim["text"], claim["support"]["agree"]) == (right, 1)
    score_ = await score(http, {"samples": [wrong, right, right], "candidate": right, "claims": True})
    assert score_["claims"][0]["support"]["agree"] == 2


async def test_too_many_claims_for_memory_are_refused(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.jobs.calibrator.MAX_CLAIMS_BYTES", 10_000)
    files = {"file": ("dev.jsonl", jsonl(rows()))}
    last = await ended(http, await http.post("/calibrate", files=files, data={"unit": "claim"}))
    assert (last["state"], last["error"]["code"]) == ("failed", "invalid_dev_data")
    assert "ask for fewer answers" in last["error"]["detail"]


async def test_claims_are_compared_by_facts_even_if_answers_are_compared_by_the_llm(tmp_path: Path) -> None:
    llm = ComparingLLM()
    app = create_app(
        Settings(data_dir=tmp_path), llm=llm, embedder=FakeEmbedder(kernel="facts"), resamples=FEW
    )
    async with in_process(app) as http:
        rows_ = rows(21)
        options = {"unit": "claim", "activate": "always", "compare": "llm"}
        made = await calibrated(http, jsonl(rows_[:20]), **options)
        assert (made["fingerprint"]["kernel"], llm.compared) == ("facts", [])
        by_llm = await score(http, asked(rows_[20], compare="llm"))
    assert by_llm["claims_calibration"]["id"] == made["id"]


@pytest.mark.parametrize(
    ("question", "facts", "least"),
    [
        ("", -2.5, -2.0),  # Mars and 1867
        ("Who visited Mars?", -2.0, -2.0),  # 1867
        ("Who visited Mars in 1867?", -0.4, -0.4),  # no fact is left: "she"
    ],
)
def test_facts_of_a_claim_have_their_own_tokens(question: str, facts: float, least: float) -> None:
    text = "She visited Mars in 1867."
    [claim] = claims(text)
    tokens = [("She", -0.4), (" visited", -0.3), (" Mars", -0.5), (" in", -0.2), (" 18", -2.0), ("67.", 0.0)]
    [spoken] = claim_logprobs(text, [claim], tokens, question)
    assert spoken is not None
    assert (spoken.facts, spoken.least) == (pytest.approx(facts), least)
    assert spoken.total == pytest.approx(-3.4)
