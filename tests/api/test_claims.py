"""Scores of long answers, claim by claim."""

import json
from typing import Any, Literal

import pytest

from service.scoring.claims import MAX_CLAIMS, MAX_SENTENCES
from service.scoring.score import Claim, ClaimSupport, mark
from tests.support.drop_in import before, events_of
from tests.support.live import fake_app, in_process
from tests.support.openai_server import answers

PARIS, SEINE, TOWER = "Paris is the capital.", "It lies on the Seine.", "The tower is 330 m high."
OTHER = "The tower is 200 m high."


async def scored(body: dict[str, Any], **settings: Any) -> dict[str, Any]:
    async with in_process(fake_app(**settings)) as http:
        reply = await http.post("/score", json=body)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


async def test_each_claim_has_a_score_a_span_and_its_support() -> None:
    candidate = f"Hello! **{PARIS}** {TOWER}\n\nIs that all?"
    samples = [f"{SEINE} {PARIS} {TOWER}", f"{PARIS} {OTHER}", f"{TOWER} {PARIS}"]
    score = await scored({"samples": samples, "candidate": candidate, "claims": True})
    first, second = score["claims"]
    assert [first["text"], second["text"]] == [PARIS, TOWER]
    assert candidate[second["start"] : second["end"]] == TOWER
    assert candidate[first["start"] : first["end"]].strip("*") == PARIS
    assert first["support"] == {"agree": 3, "differ": 0, "silent": 0, "example": None}
    assert second["support"]["agree"] == 2
    assert first["lambda_max"] > second["lambda_max"]
    assert first["probability"] > second["probability"]
    assert not (first["doubtful"] or second["doubtful"])
    assert score["claims_calibration"] is None


async def test_disputed_json_field_is_detected() -> None:
    def person(born: int) -> str:
        return json.dumps({"name": "Ada", "born": born})

    body = {
        "samples": [person(1815), person(1815), person(1820), '{"name": "Ada"}'],
        "candidate": person(1815),
    }
    name, born = (await scored(body | {"claims": True, "calibration": "none"}))["claims"]
    assert (name["text"], name["lambda_max"]) == ("name: Ada", pytest.approx(1))
    assert (born["text"], born["lambda_max"]) == ("born: 1815", pytest.approx(0.5))
    assert born["support"] == {"agree": 2, "differ": 1, "silent": 1, "example": "1820"}


@pytest.mark.parametrize(
    ("length", "claims", "comes"), [(3, None, False), (3, True, True), (60, None, True), (60, False, False)]
)
async def test_long_answers_are_scored_by_claims_automatically(
    length: int, claims: bool | None, comes: bool
) -> None:
    answer = " ".join(f"Fact {i} holds." for i in range(length))
    body = {"samples": [answer, answer], **({} if claims is None else {"claims": claims})}
    assert ("claims" in await scored(body)) is comes
    assert ("claims" in await scored(body, claims_from_characters=0)) is (claims is True)


async def test_claims_over_the_limit_are_left_out_with_a_warning() -> None:
    answer = "\n".join(f"- Fact {i} holds." for i in range(MAX_CLAIMS + 5))
    score = await scored({"samples": [answer, answer], "claims": True})
    assert len(score["claims"]) == MAX_CLAIMS
    assert "claims_left_out" in {warning["code"] for warning in score["warnings"]}


@pytest.mark.parametrize(
    "answer",
    ["The tower is high. " * 8000, " ".join(f"Fact {i} holds." for i in range(MAX_SENTENCES + 1))],
    ids=["characters", "sentences"],
)
async def test_too_long_answers_are_scored_without_claims(answer: str) -> None:
    score = await scored({"samples": [answer, f"{answer} Or so."]})
    assert score["claims"] == []
    assert "claims_left_out" in {warning["code"] for warning in score["warnings"]}


@pytest.mark.parametrize("answer", ["Hello!", "{}", "```\ncode\n```"])
async def test_answer_without_claims_has_an_empty_list(answer: str) -> None:
    score = await scored({"samples": [answer, "Paris."], "candidate": answer, "claims": True})
    assert score["claims"] == []


@pytest.mark.parametrize(
    "fact", ["Thank you for asking, the dose is 5000 mg every hour.", "I hope this helps: the dose is high."]
)
async def test_fact_inside_a_polite_phrase_is_a_claim(fact: str) -> None:
    answer = f"Hello! {fact} Have a great day!"
    score = await scored({"samples": [answer, "Ask a doctor."], "candidate": answer, "claims": True})
    assert [claim["text"] for claim in score["claims"]] == [fact]


@pytest.mark.parametrize(
    ("agree", "correct", "decision", "doubtful"),
    [
        (1, None, None, False),
        (0, None, None, True),
        (4, 0.4, None, True),
        (0, 0.5, None, False),
        (4, 0.9, "abstain", True),
        (0, 0.4, "answer", False),
    ],
)
def test_doubtful_claims_follow_decision_then_p_correct_then_agreement(
    agree: int, correct: float | None, decision: Literal["answer", "abstain"] | None, doubtful: bool
) -> None:
    support = ClaimSupport(agree=agree, differ=4 - agree, silent=1, example=OTHER)
    claim = Claim.model_construct(
        text=TOWER, start=3, end=9, decision=decision, probability_correct=correct, support=support
    )
    shown = mark(claim)
    assert (claim.doubtful, shown.doubtful) == (doubtful, doubtful)
    assert (shown.text, shown.start, shown.end) == (TOWER, 3, 9)
    probability = "" if correct is None else f"right with probability {correct:.0%}; "
    other = f"; different in {4 - agree}, such as “{OTHER}”" if agree < 4 else ""
    why = f"{probability}stated in {agree} of 5 answers{other}; not mentioned in 1"
    assert shown.why == (why[0].upper() + why[1:] if doubtful else None)


@pytest.mark.parametrize(("correct", "doubtful"), [(None, None), (0.5, False), (0.4, True)])
def test_doubtful_claims_follow_p_correct_without_samples(
    correct: float | None, doubtful: bool | None
) -> None:
    claim = Claim.model_construct(
        text=TOWER, start=3, end=9, decision=None, probability_correct=correct, support=None
    )
    assert mark(claim).doubtful is doubtful
    assert mark(claim).why == ("Right with probability 40%" if doubtful else None)


ANSWER = f"Hello! **{PARIS}** {TOWER}"
THOUGHT = f"<think>{ANSWER}</think>\n\n"


@pytest.mark.parametrize("stream", [False, True])
async def test_chat_marks_doubtful_spans_without_changing_the_text(stream: bool) -> None:
    """Spans refer to the choice's text, which begins with reasoning of the same words."""
    content = THOUGHT + ANSWER
    draws = answers(f"{PARIS} {OTHER}", f"{OTHER} {PARIS}", PARIS)
    async with before(answers(content), draws) as made:
        body = {"num_samples": 3, "mark": True}
        response = await made.ask(stream=stream, eigencal=body)
        events = events_of(response.content) if stream else [response.json()]
        bare = (await made.ask(eigencal={"claims": True})).json()["uncertainty"]
        kept = await made.scored(response.headers["x-score-id"])
    [uncertainty] = [event["uncertainty"] for event in events if "uncertainty" in event]
    choices = [choice["delta" if stream else "message"] for event in events for choice in event["choices"]]
    assert "".join(choice.get("content") or "" for choice in choices) == content
    first, second = uncertainty["marks"]
    assert content[first["start"] : first["end"]].strip("*") == PARIS and first["start"] > len(THOUGHT)
    assert content[second["start"] : second["end"]] == TOWER and second["start"] > len(THOUGHT)
    assert (first["doubtful"], first["why"]) == (False, None)
    assert second["doubtful"]
    assert second["why"] == "Stated in 0 of 3 answers; not mentioned in 3"
    for claim, shown in zip(uncertainty["claims"], uncertainty["marks"], strict=True):
        assert {**claim, **shown} == {**claim, "why": shown["why"]}
    assert kept["marks"] == uncertainty["marks"]
    assert "marks" not in bare and bare["claims"]


async def test_claims_do_not_reveal_withheld_answers() -> None:
    text = " ".join(f"Fact {i} holds." for i in range(60))
    async with before(answers(text), answers(text), abstain=True, target_error=0.2) as made:
        response = await made.ask(eigencal={"mark": True})
        kept = await made.scored(response.headers["x-score-id"])
    assert response.json()["uncertainty"]["decision"] is None  # without a calibration
    assert "Fact" not in response.text and "Fact" not in json.dumps(kept)


async def test_fewer_claims_are_scored_with_many_answers() -> None:
    body = {
        "samples": [f"City {number} of France is Lyon." for number in range(256)],
        "candidate": " ".join(f"River {number} flows to Lyon." for number in range(20)),
        "claims": True,
    }
    score = await scored(body)
    [warning] = [item for item in score["warnings"] if item["code"] == "claims_left_out"]
    assert len(score["claims"]) == 16
    assert warning["message"].startswith("The text has 20 claims. The first 16 are scored, the other 4")
