"""Long answers claim by claim."""

import json
from typing import Any

import httpx
import pytest

from service.app import create_app
from service.scoring.claims import MAX_CLAIMS, MAX_SENTENCES
from service.settings import Settings
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.sqlite_store import SqliteStore

pytestmark = pytest.mark.anyio
PARIS, SEINE, TOWER = "Paris is the capital.", "It lies on the Seine.", "The tower is 330 m high."
OTHER = "The tower is 200 m high."


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def scored(body: dict[str, Any], **settings: Any) -> dict[str, Any]:
    app = create_app(Settings(**settings), llm=FakeLLM(), embedder=FakeEmbedder(), store=SqliteStore())
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://t") as http,
    ):
        reply = await http.post("/score", json=body)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


async def test_each_claim_of_the_candidate_has_a_score_its_place_and_what_speaks_for_it() -> None:
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
    assert first["rank_score"] > second["rank_score"]
    assert 0 < score["claims_share"] < 1
    assert score["claims_calibration"]["origin"] == "default"


async def test_a_disputed_field_of_json_is_seen() -> None:
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
async def test_long_answers_are_scored_by_themselves(length: int, claims: bool | None, comes: bool) -> None:
    answer = " ".join(f"Fact {i} holds." for i in range(length))
    body = {"samples": [answer, answer], **({} if claims is None else {"claims": claims})}
    assert ("claims" in await scored(body)) is comes
    assert ("claims" in await scored(body, claims_from_characters=0)) is (claims is True)


async def test_claims_past_the_bound_are_left_out_and_that_is_said() -> None:
    answer = "\n".join(f"- Fact {i} holds." for i in range(MAX_CLAIMS + 5))
    score = await scored({"samples": [answer, answer], "claims": True})
    assert len(score["claims"]) == MAX_CLAIMS
    assert "claims_left_out" in {one["code"] for one in score["warnings"]}


@pytest.mark.parametrize(
    "answer",
    ["The tower is high. " * 8000, " ".join(f"Fact {i} holds." for i in range(MAX_SENTENCES + 1))],
    ids=["characters", "sentences"],
)
async def test_answers_too_long_to_be_read_have_a_score_without_claims(answer: str) -> None:
    score = await scored({"samples": [answer, f"{answer} Or so."]})
    assert score["claims"] == []
    assert "claims_left_out" in {one["code"] for one in score["warnings"]}


@pytest.mark.parametrize("answer", ["Hello!", "{}", "```\ncode\n```"])
async def test_an_answer_that_claims_nothing_has_no_claims(answer: str) -> None:
    score = await scored({"samples": [answer, "Paris."], "candidate": answer, "claims": True})
    assert (score["claims"], score["claims_share"]) == ([], 0.0)
