"""A candidate, or a chat's answer, is judged by its own log-probability without samples."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest

from service.app import create_app, serving_of
from service.calibration.calibration import Calibration, Selector, service_fingerprint
from service.errors import EmbedderUnavailable
from service.settings import Settings
from service.spectral.conformal import ConformalReference
from service.spectral.correctness_model import AGREEMENT, CorrectnessModel
from service.spectral.evidence import EvidenceMap
from tests.api.test_decisions import answered
from tests.support import drop_in
from tests.support.calibrations import Active, calibration
from tests.support.decisions import COUNTS, selector
from tests.support.drop_in import events_of, for_chats
from tests.support.evidence import TellingLLM, sureness
from tests.support.fakes import FakeEmbedder, last_user_text
from tests.support.live import in_process
from tests.support.openai_server import MODEL, Behaviour, Exchange
from tests.support.operator_world import ended
from tests.support.reports import FEW
from tests.support.sqlite_store import SqliteStore

DIMENSION = 8
SERVING = serving_of(Settings())
ASKED = {"prompt": "question 0", "num_samples": 0, "candidate": "two words", "candidate_logprob": -4.0}
LIKELY = 1 / (1 + math.exp(-2))  # of `ASKED`
Served = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


def agreement(log_probability: float, dimension: int) -> float:
    """Return the agreement of a text judged by itself: the logit of its calibrated eigenvalue."""
    likely = math.exp(log_probability) + (1 - math.exp(log_probability)) / dimension
    return math.log(likely / (1 - likely))


CENTER = agreement(-4.0, DIMENSION)


def of_log_probability(slope: float) -> Selector:
    """P(correct) = sigmoid(2 + slope (z - CENTER)), z the agreement."""
    model = CorrectnessModel((AGREEMENT,), (CENTER,), (1.0,), (slope,), 2.0, (-1e9,), (1e9,))
    return Selector(EvidenceMap(1.0, 0.0, 1.0), model, COUNTS, "first")


def fitted(**parts: Any) -> Calibration:
    """Return a calibration for the prompts of `TellingLLM` that decides without samples and with three."""
    request = SERVING.request(prompt="question 0")
    wanted = service_fingerprint(
        TellingLLM().identity(request), request.sampling, FakeEmbedder(DIMENSION).identity
    )
    selectors = {0: of_log_probability(40.0), 3: selector()}
    return replace(calibration(), **{"fingerprint": wanted, "selectors": selectors} | parts)


@pytest.fixture
def started(tmp_path: Path) -> Served:
    """Return a factory of clients of a service with this active calibration, or without one."""

    @asynccontextmanager
    async def start(
        made: Calibration | None = None,
        llm: TellingLLM | None = None,
        embedder: FakeEmbedder | None = None,
        **settings: Any,
    ) -> AsyncIterator[httpx.AsyncClient]:
        embedder = embedder or FakeEmbedder(DIMENSION)
        store = SqliteStore()
        if made is not None:
            store.calibrations = Active(made)
        set_up = Settings(data_dir=tmp_path, **settings)
        app = create_app(set_up, llm=llm or TellingLLM(), embedder=embedder, store=store)
        async with in_process(app) as http:
            yield http

    return start


async def test_candidate_is_judged_without_samples_or_embeddings(started: Served) -> None:
    llm, embedder = TellingLLM(), FakeEmbedder(DIMENSION)
    made = fitted()
    async with started(made, llm, embedder) as http:
        body = await answered(http, **ASKED, **{"return": ["modes", "samples"]})
        metrics = (await http.get("/metrics")).text
    assert llm.requests == [] and not any(embedder.calls)
    nulls = ("lambda_max", "entropy", "entropy_normalized", "uncalibrated", "evidence")
    assert {name: body[name] for name in nulls} == dict.fromkeys(nulls)
    assert body["usage"] == {"prompt_tokens": 8, "completion_tokens": 1}  # of the self-check
    assert (body["answer"], body["num_samples"], body["modes"], body["samples"]) == ("two words", 0, [], [])
    assert body["probability_correct"] == pytest.approx(LIKELY)
    assert body["candidate"] == {
        "probability": None,
        "mode": None,
        "probability_correct": pytest.approx(LIKELY),
    }
    assert (body["decision"]["action"], body["decision"]["threshold"]) == ("answer", 0.5)
    assert (body["calibrated"], body["calibration"]["id"], body["warnings"]) == (True, made.id, [])
    assert body["calibration"]["temperature"] is body["calibration"]["depolarization"] is None
    headers = body["headers"]
    assert headers["x-probability-correct"] == f"{LIKELY:.6f}" and headers["x-decision"] == "answer"
    assert 'eigencal_scores_total{calibrated="true"} 1.0' in metrics
    assert "eigencal_lambda_max_count 0.0" in metrics


async def test_it_is_said_that_p_correct_without_samples_is_about_bundled_questions(started: Served) -> None:
    made = fitted(selectors={0: replace(of_log_probability(40.0), is_bundled=True), 3: selector()})
    async with started(made) as http:
        [warning] = (await answered(http, **ASKED))["warnings"]
    assert warning["code"] == "bundled_questions" and "log-probability" in warning["message"]


async def test_p_correct_rises_with_the_logprob_and_unsure_text_is_withheld(started: Served) -> None:
    async with started(fitted()) as http:
        bodies = [
            await answered(http, **ASKED | {"candidate_logprob": total}) for total in (0.009, 0, -9, -1e9)
        ]
    values = [body["probability_correct"] for body in bodies]
    assert values == sorted(values, reverse=True)
    assert values[0] == values[1]
    assert 0 < values[-1] < 0.1
    assert [body["decision"]["action"] for body in bodies] == ["answer", "answer", "abstain", "abstain"]


def tokens(*parts: Any) -> list[dict[str, Any]]:
    """Return tokens in the format of requests, from texts and log-probabilities."""
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [{"token": text, "logprob": value} for text, value in pairs]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"candidate": None}, "must not be null"),
    ({"candidate_logprob": 0.5}, "candidate_logprob"),
    ({"candidate_logprob": "-1"}, "candidate_logprob"),
    ({"samples": ["a", "b"]}, "`num_samples` applies to drawing"),
    ({"candidate_tokens": tokens("two", -90.0, " words", -9.0)}, "sum to -99"),
    ({"candidate_tokens": tokens("So. ", -1.0, "two", -3.0, " words", -9.0)}, "sum to -12"),
    ({"candidate_tokens": tokens("two", -0.05, " words", -0.05), "candidate_logprob": -99.0}, "sum to -0.1"),
]


@pytest.mark.parametrize(("sent", "message"), REFUSED)
async def test_unsuitable_requests_are_refused(started: Served, sent: Any, message: str) -> None:
    async with started() as http:
        response = await http.post("/score", json=ASKED | sent)
    assert (response.status_code, response.json()["code"]) == (422, "invalid_request")
    assert message in response.text


AGREEING = {
    "rounded": tokens("two", -1.004, " words", -3.0),
    "without the token that ended it": tokens("two", -1.0, " words", -1.0),
    "after a thought": tokens("Hm. ", -50.0, "two", -1.0, " words", -3.0),
    "of another text": tokens("something", -50.0, " else", -49.0),
}


@pytest.mark.parametrize("sent", AGREEING.values(), ids=AGREEING)
async def test_tokens_consistent_with_the_logprob_are_accepted(started: Served, sent: Any) -> None:
    async with started(fitted()) as http:
        body = await answered(http, **ASKED, candidate_tokens=sent)
    assert body["probability_correct"] == pytest.approx(LIKELY)


async def test_missing_field_is_named(started: Served) -> None:
    async with started() as http:
        for missing in ("candidate", "candidate_logprob"):
            sent = {name: value for name, value in ASKED.items() if name != missing}
            response = await http.post("/score", json=sent)
            assert response.status_code == 422 and f"`{missing}`" in response.text
        without = await http.post("/score", json={"prompt": "q", "candidate_logprob": -1.0})
    assert without.status_code == 422 and "needs `candidate`" in without.text


async def test_decision_explains_the_missing_p_correct(started: Served) -> None:
    unlike = fitted(fingerprint=replace(fitted().fingerprint, model="another"))
    for made, codes, why in (
        (None, ["calibration_missing"], None),
        (unlike, ["calibration_mismatch"], None),
        (fitted(selectors={3: selector()}), [], "has no correctness model for 0 answers"),
    ):
        async with started(made) as http:
            body = await answered(http, **ASKED)
            raw = await answered(http, **ASKED, calibration="none", target_error=0.1)
        assert [warning["code"] for warning in body["warnings"]] == codes
        assert body["probability_correct"] is None and not body["calibrated"]
        if why is None:  # the warning has the reason
            assert body["decision"] is None
        else:
            assert (body["decision"]["action"], body["decision"]["target_error"]) == ("abstain", 0.2)
            assert why in body["decision"]["reason"]
        assert raw["probability_correct"] is raw["calibration"] is raw["decision"] is None


async def test_claims_are_ranked_if_their_calibration_needs_samples(
    started: Served,
) -> None:
    own = fitted(fingerprint=replace(fitted().fingerprint, unit="claim"), selectors={3: selector()})
    async with started(own) as http:
        sent = tokens("two", -1.0, " words", -3.0)
        body = await answered(http, **ASKED, candidate_tokens=sent, claims=True)
    [claim] = body["claims"]
    assert claim["least_logprob"] == pytest.approx(-3.0) and claim["probability_correct"] is None


async def test_unlike_question_is_detected_without_samples(started: Served) -> None:
    rng = np.random.default_rng(0)
    # Near each other, and far from all other questions.
    questions = np.eye(DIMENSION)[0] + 0.01 * rng.standard_normal((200, DIMENSION))
    unit = (questions / np.linalg.norm(questions, axis=1, keepdims=True)).astype(np.float32)
    reference = ConformalReference(unit, np.full((200, 3), 2, dtype=np.int32))
    embedder = FakeEmbedder(DIMENSION)
    async with started(fitted(reference=reference), embedder=embedder) as http:
        body = await answered(http, **ASKED)
    assert {call for call in embedder.calls if call} == {("question 0",)}
    assert body["ood_p_value"] == pytest.approx(1 / 201)
    assert [warning["code"] for warning in body["warnings"]] == ["out_of_distribution"]
    assert body["probability_correct"] == pytest.approx(LIKELY)


def short_answers(**parts: Any) -> ConformalReference:
    """Twenty rows: each with three drawn answers of one to three words."""
    lengths = np.array([[1, 2, 3]] * 20, dtype=np.int32)
    return ConformalReference(np.empty((0, DIMENSION), dtype=np.float32), lengths, **parts)


PADDED = "Lyon " + "so far as anyone can tell today " * 5


async def test_answer_longer_than_all_rows_is_reported(started: Served) -> None:
    padded = ASKED | {"candidate": PADDED}
    async with started(fitted(reference=short_answers())) as http:
        short = await answered(http, **ASKED)
        long = await answered(http, **padded)
    assert (short["decision"]["action"], short["warnings"]) == ("answer", [])
    assert [warning["code"] for warning in long["warnings"]] == ["out_of_distribution"]
    assert "1 to 3 words" in long["warnings"][0]["message"]

    judged = np.array([len(PADDED.split())], dtype=np.int32)
    async with started(fitted(reference=short_answers(judged=judged))) as http:
        body_ = await answered(http, **padded)
    assert (body_["decision"]["action"], body_["warnings"]) == ("answer", [])


AUTO = {"prompt": "question 0", "num_samples": "auto"}
OF_CANDIDATE = {"candidate": "two words", "candidate_logprob": -4.0}


@pytest.mark.parametrize(
    ("recommended", "sent", "drawn"),
    [
        (4, {}, 4),
        (4, OF_CANDIDATE, 4),
        (0, OF_CANDIDATE, 0),
        (0, {}, 3),
        (None, OF_CANDIDATE, 3),
        (4, {"calibration": "none"}, 3),
    ],
)
async def test_auto_uses_the_number_recommended_by_the_report(
    started: Served, recommended: int | None, sent: Any, drawn: int
) -> None:
    async with started(fitted(recommended=recommended)) as http:
        body = await answered(http, **AUTO, **sent)
    assert body["num_samples"] == drawn


class Sure(TellingLLM):
    """Answers all questions alike, with the log-probability given by their number."""

    def _texts(self, request: Any) -> list[str]:
        return [f"{last_user_text(request)} is so"] * request.num_samples


async def test_all_service_sampled_calibrations_apply(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    right = rng.random(200) < [sureness(i) for i in range(200)]
    prompts = [f"question {i}" for i in range(200)]
    rows = [
        {"prompt": prompt, "reference": f"{prompt} is so" if item else "x", "correct": bool(item)}
        for prompt, item in zip(prompts, right, strict=True)
    ]
    settings = Settings(data_dir=tmp_path, num_samples=3)
    async with in_process(
        create_app(settings, llm=Sure(), embedder=FakeEmbedder(DIMENSION), resamples=FEW)
    ) as http:
        await ended(http, await http.post("/calibrate", json={"examples": rows, "activate": "always"}))
        [made] = (await http.get("/calibrations")).json()
        assert made["correctness_sample_counts"][0] == 0
        async with asyncio.timeout(30):  # an activation takes effect a moment later
            while not (await answered(http, **ASKED))["calibrated"]:
                await asyncio.sleep(0.05)
        unsure, sure = [
            await answered(http, **ASKED | {"candidate": "question 7 is so", "candidate_logprob": total})
            for total in (-3.0, -0.05)
        ]
    assert unsure["warnings"] == sure["warnings"] == []
    assert unsure["probability_correct"] < 0.5 < sure["probability_correct"]
    assert sure["calibration"]["id"] == made["id"] and sure["ood_p_value"] is not None


async def test_embedder_started_later_is_identified(started: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = FakeEmbedder(DIMENSION)
    identity = embedder.identity

    def unknown(_: FakeEmbedder) -> Any:
        raise EmbedderUnavailable("It has not answered yet.")

    async def check() -> None:
        monkeypatch.setattr(FakeEmbedder, "identity", property(lambda _: identity))

    async with started(fitted(), TellingLLM(), embedder) as http:
        monkeypatch.setattr(FakeEmbedder, "identity", property(unknown))
        monkeypatch.setattr(embedder, "check", check)
        assert (await answered(http, **ASKED))["probability_correct"] == pytest.approx(LIKELY)


# The drop-in


def active(**parts: Any) -> Active:
    """Return an active calibration for conversations of the scripted server."""
    return for_chats(fitted(**{"selectors": {0: of_log_probability(1.0), 3: selector()}} | parts))


def telling(*, tells: bool = True, refuses: int = 0, tokens: int = 2, ends: str = "stop") -> Any:
    """Answer "so it is" in chunks, with log-probabilities of -1 in total on request.

    refuses: the status that refuses log-probabilities; 0: none.
    """

    async def behave(exchange: Exchange) -> None:
        body = exchange.body
        wanted = body.get("logprobs")
        if refuses and wanted is not None:
            await exchange.send(refuses, {"error": {"message": "logprobs are not for you"}})
            return
        token = {"token": "token_id:1", "logprob": -1 / tokens}
        body_ = {"content": [token] * (tokens // 2)} if wanted and tells else None
        if not body.get("stream"):
            whole = body_ and {"content": [token] * tokens}
            message = {"role": "assistant", "content": "so it is"}
            choice = {"index": 0, "message": message, "logprobs": whole, "finish_reason": ends}
            choices = [choice | {"index": index} for index in range(body.get("n", 1))]
            await exchange.send(200, {"model": MODEL, "choices": choices, "usage": {"prompt_tokens": 3}})
            return
        choices = [
            {"index": 0, "delta": {"content": text}, "logprobs": body_, "finish_reason": reason}
            for text, reason in (("so it", None), (" is", ends))
        ]
        await exchange.stream(*({"model": MODEL, "choices": [choice]} for choice in choices))

    return behave


def before(behave: Behaviour, made: Active | None = None, **settings: Any) -> Any:
    return drop_in.before(behave, behave, active=made or active(), **settings)


NONE = {"eigencal": {"num_samples": 0}}
OF_CHAT = 1 / (1 + math.exp(-(2 + agreement(-1.0, 16) - CENTER)))


def told_by(response: httpx.Response, *, stream: bool) -> list[dict[str, Any]]:
    return events_of(response.content) if stream else [response.json()]


def own_logprobs(tokens: list[dict[str, Any]]) -> list[float]:
    lists = [chunk["choices"][0]["logprobs"] for chunk in tokens if chunk["choices"]]
    return [token["logprob"] for list_ in lists if list_ for token in list_["content"]]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("body", [{}, {"logprobs": False}, {"logprobs": None}], ids=str)
async def test_chat_is_judged_by_its_own_call(body: dict[str, Any], stream: bool) -> None:
    async with before(telling()) as made:
        response = await made.ask(stream=stream, **NONE, **body)
        assert [sent["logprobs"] for sent in made.server.bodies] == [True]
    events = told_by(response, stream=stream)
    uncertainty = events[-1]["uncertainty"]
    assert (uncertainty["status"], uncertainty["num_samples"]) == ("scored", 0)
    assert uncertainty["lambda_max"] is None
    assert uncertainty["probability_correct"] == pytest.approx(OF_CHAT)
    assert uncertainty["decision"]["action"] == "answer" and uncertainty["warnings"] == []
    assert uncertainty["model"] == MODEL
    assert own_logprobs(events) == []


async def test_auto_is_none_if_recommended() -> None:
    for recommended, number in ((0, 0), (4, 4), (None, 3)):
        async with before(telling(), active(recommended=recommended), chat_num_samples="auto") as made:
            assert (await made.ask()).json()["uncertainty"]["num_samples"] == number


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("lacks", [{"tells": False}, {"refuses": 400}, {"ends": "length"}], ids=str)
async def test_auto_samples_if_the_answer_cannot_be_judged_alone(lacks: Any, stream: bool) -> None:
    async with before(telling(**lacks), active(recommended=0), chat_num_samples="auto") as made:
        response = await made.ask(stream=stream)
        assert {sent["n"] for sent in made.server.bodies if "n" in sent} == {3}
        response_ = await made.ask(stream=stream, **NONE)
    uncertainty = told_by(response, stream=stream)[-1]["uncertainty"]
    assert (uncertainty["status"], uncertainty["num_samples"]) == ("scored", 3)
    assert told_by(response_, stream=stream)[-1]["uncertainty"]["status"] == "not_scored"


# A 500 may be transient and is retried.
@pytest.mark.parametrize(("code", "next_calls"), [(400, 1), (500, 2)])
async def test_answer_is_returned_if_the_server_refuses_logprobs(code: int, next_calls: int) -> None:
    async with before(telling(refuses=code)) as made:
        response = await made.ask(**NONE)
        assert len(made.server.bodies) == 2
        await made.ask(**NONE)
        assert len(made.server.bodies) == 2 + next_calls
        # One kind of call does not affect another.
        await made.ask(**NONE, tools=[{"type": "function", "function": {"name": "f"}}])
        assert len(made.server.bodies) == 4 + next_calls
    body = response.json()
    assert body["choices"][0]["message"]["content"] == "so it is"
    assert body["uncertainty"]["warning"]["code"] == "no_log_probability"
