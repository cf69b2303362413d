"""POST /beta/litellm_basic_guardrail_api: samples are drawn during a chat, and judge its answer."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from service.errors import LLMUnavailable
from service.gateways import guardrail
from service.llm.port import Message
from tests.support.fakes import FakeLLM
from tests.support.replica_apps import orthogonal, replica_app

PATH = "/beta/litellm_basic_guardrail_api"
REASON = "x-eigencal-reason"
SECRET = "What is the capital of the country that nobody may read of in a log?"
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": SECRET}]
UNANIMOUS = ["Paris"] * 5


def replica(folder: Path, name: str, llm: FakeLLM, **settings: Any) -> Any:
    request = {"num_samples": 5, "target_error": 0.18, "decides": True} | settings
    return replica_app(folder, name, llm=llm, embedder=orthogonal(), **request)


def body(**sent: Any) -> dict[str, Any]:
    """Return a call in LiteLLM's format, in which missing values are null."""
    empty = ("structured_messages", "images", "tools", "texts", "request_headers", "tool_calls", "model")
    fields = {"litellm_call_id": "call-1", "litellm_trace_id": "t", "litellm_version": "1.109.1"}
    more = {"request_data": {"user_api_key_hash": "h"}, "additional_provider_specific_params": {}}
    return dict.fromkeys(empty) | fields | more | sent


async def asked(http: httpx.AsyncClient, **sent: Any) -> httpx.Response:
    arguments = {"input_type": "request", "structured_messages": MESSAGES, "texts": ["Be brief.", SECRET]}
    response = await http.post(PATH, json=body(**arguments | sent), headers=sent.pop("headers", None))
    assert (response.status_code, response.json()) == (200, {"action": "NONE"}), response.text
    return response


async def judged(http: httpx.AsyncClient, text: str | None = "Paris", **sent: Any) -> httpx.Response:
    texts = None if text is None else [text]
    response = await http.post(PATH, json=body(input_type="response", texts=texts, **sent))
    assert response.status_code == 200, response.text
    return response


async def drawn(llm: FakeLLM) -> None:
    async with asyncio.timeout(60):
        while llm.active or not llm.requests:
            await asyncio.sleep(0.01)


async def pending(llm: FakeLLM) -> None:
    async with asyncio.timeout(60):
        while not llm.active:
            await asyncio.sleep(0.01)


async def test_sure_answer_passes_and_unsure_answer_is_blocked_with_a_reason(tmp_path: Path) -> None:
    llm = FakeLLM(default=UNANIMOUS)
    async with replica(tmp_path, "one", llm) as http:
        await asked(http)
        sure, unsure = await judged(http), await judged(http, "Lyon")
        score = (await http.get(f"/scores/{unsure.headers['x-score-id']}")).json()
    assert sure.json() == {"action": "NONE"}
    assert REASON not in sure.headers and sure.headers["x-decision"] == "answer"
    assert unsure.json()["action"] == "BLOCKED"
    assert "None of the answers drawn" in unsure.json()["blocked_reason"]
    assert score["decision"]["action"] == "abstain" and score["candidate"]["probability_correct"] is None
    assert [request.messages for request in llm.requests] == [
        (Message("system", "Be brief."), Message("user", SECRET))
    ]


ANOTHER = [{"role": "user", "content": "Another?"}]
CLOSED = {"additional_provider_specific_params": {"fail_closed": True}}


async def test_chats_with_the_same_id_never_share_samples(tmp_path: Path) -> None:
    llm = FakeLLM(default=UNANIMOUS, gate=asyncio.Event())
    async with replica(tmp_path, "one", llm) as http:
        await asked(http)
        await pending(llm)
        await asked(http, structured_messages=ANOTHER)
        await asked(http)  # once more, because an answer may belong to the other
        llm.gate.set()
        judged_ = await judged(http)
        assert "Two chats" in judged_.headers[REASON] and "x-decision" not in judged_.headers
        assert (await judged(http, "Lyon", **CLOSED)).json()["action"] == "BLOCKED"


async def test_answer_with_its_chat_is_sampled_without_an_earlier_request(
    tmp_path: Path,
) -> None:
    llm = FakeLLM(default=UNANIMOUS)
    async with replica(tmp_path, "one", llm) as http:
        assert "No request call" in (await judged(http)).headers[REASON]
        judged_ = await judged(http, structured_messages=MESSAGES)
        assert judged_.headers["x-decision"] == "answer"
        assert "Two chats" in (await judged(http, structured_messages=ANOTHER)).headers[REASON]
    assert len(llm.requests) == 1


async def test_chat_does_not_wait_for_samples(tmp_path: Path) -> None:
    llm = FakeLLM(default=UNANIMOUS, gate=asyncio.Event())
    async with replica(tmp_path, "one", llm) as http:
        async with asyncio.timeout(60):
            await asked(http)
        await pending(llm)
        verdict = asyncio.create_task(judged(http))
        await asyncio.sleep(0.1)
        assert not verdict.done()
        llm.gate.set()
        assert (await verdict).json() == {"action": "NONE"}


async def test_partial_stream_is_judged_without_sampling_again(tmp_path: Path) -> None:
    llm = FakeLLM(default=UNANIMOUS)
    async with replica(tmp_path, "one", llm) as http:
        await asked(http)
        actions = [(await judged(http, text)).json()["action"] for text in ("Nice", "Lyon", "Paris")]
        assert actions == ["BLOCKED", "BLOCKED", "NONE"]
    assert len(llm.requests) == 1


async def test_calls_of_another_key_are_not_found(tmp_path: Path) -> None:
    keys = {"score_key": "of-scores", "admin_key": "of-admins"}
    llm = FakeLLM(default=UNANIMOUS)
    async with replica(tmp_path, "one", llm, **keys) as http:
        assert (await http.post(PATH, json=body(input_type="request"))).status_code == 401
        wrong = await http.post(PATH, json=body(input_type="request"), headers={"x-api-key": "wrong"})
        assert wrong.status_code == 401
        http.headers["x-api-key"] = "of-scores"
        await asked(http)
        judged_ = await judged(http)
        assert judged_.headers["x-decision"] == "answer"
        http.headers["x-api-key"] = "of-admins"
        other = await judged(http)
        assert (other.json(), "x-score-id" in other.headers) == ({"action": "NONE"}, False)
        assert "No request call" in other.headers[REASON]
        assert (await http.get(f"/scores/{judged_.headers['x-score-id']}")).status_code == 404
        await asked(http)  # under the same id
        assert (await judged(http)).headers["x-decision"] == "answer"
    assert len(llm.requests) == 2


UNSCORED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"tools": [{"type": "function"}]}, {}, "has tools"),
    ({"structured_messages": None}, {}, "no messages"),
    ({"structured_messages": [{"role": "tool", "content": "x"}]}, {}, "role other"),
    ({"structured_messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, {}, "not text"),
    ({"structured_messages": [{"role": "assistant", "content": "", "tool_calls": [1]}]}, {}, "calls a tool"),
    ({"structured_messages": [*MESSAGES, {"role": "assistant", "content": "It is"}]}, {}, "ends with"),
    ({}, {"tool_calls": [{"id": "a"}]}, "calls tools"),
    ({}, {"text": None}, "no text"),
    ({}, {"litellm_call_id": None}, "no litellm_call_id"),
    ({}, {"litellm_call_id": "another"}, "No request call"),
]


@pytest.mark.parametrize(("request_", "response", "why"), UNSCORED)
async def test_unscorable_answer_passes_with_a_reason(
    tmp_path: Path, request_: dict[str, Any], response: dict[str, Any], why: str
) -> None:
    async with replica(tmp_path, "one", FakeLLM(default=UNANIMOUS)) as http:
        await asked(http, **request_)
        judged_ = await judged(http, **response)
        assert judged_.json() == {"action": "NONE"}
        assert why in judged_.headers[REASON]
        closed = {"additional_provider_specific_params": {"fail_closed": True}}
        blocked = (await judged(http, **response, **closed)).json()
    assert blocked["action"] == "BLOCKED" and why in blocked["blocked_reason"]


async def test_the_gateway_may_set_target_and_effort(tmp_path: Path) -> None:
    llm = FakeLLM(default=["Paris", "Lyon", "Paris"])
    async with replica(tmp_path, "one", llm, target_error=None) as http:
        for target, action in ((0.05, "BLOCKED"), (0.37, "NONE")):
            params = {"target_error": target, "effort": "low", "unknown": 1}
            sent = {"additional_provider_specific_params": params, "litellm_call_id": str(target)}
            await asked(http, **sent)
            judged_ = await judged(http, **sent)
            assert judged_.json()["action"] == action
            promised = "cannot promise" not in judged_.json().get("blocked_reason", "")
            assert promised == (target == 0.37)
    assert [request.num_samples for request in llm.requests] == [3, 3]


@pytest.mark.parametrize(("sent_closed", "closed"), [(False, False), ("false", False), (True, True)])
async def test_invalid_parameters_do_not_fail_the_chat(
    tmp_path: Path, sent_closed: object, closed: bool
) -> None:
    sent = {"additional_provider_specific_params": {"target_error": "5 %", "fail_closed": sent_closed}}
    async with replica(tmp_path, "one", FakeLLM()) as http:
        await asked(http, **sent)
        judged_ = await judged(http, **sent)
    assert judged_.json()["action"] == ("BLOCKED" if closed else "NONE")
    assert "target_error" in judged_.headers[REASON]


@pytest.mark.parametrize("closed", [False, True])
async def test_samples_without_text_do_not_let_an_answer_pass_as_sure(tmp_path: Path, closed: bool) -> None:
    sent = {"additional_provider_specific_params": {"fail_closed": closed}}
    async with replica(tmp_path, "one", FakeLLM(default=[""])) as http:
        await asked(http, **sent)
        judged_ = await judged(http, **sent)
    assert judged_.json()["action"] == ("BLOCKED" if closed else "NONE")
    assert "5 of 5 drawn answers have no text" in judged_.headers[REASON]
    assert "x-decision" not in judged_.headers


@pytest.mark.parametrize("closed", [False, True])
async def test_without_a_calibration_the_chat_goes_on(tmp_path: Path, closed: bool) -> None:
    """The decision is then to abstain, but not because of this answer."""
    sent = {"additional_provider_specific_params": {"fail_closed": closed}}
    async with replica(tmp_path, "one", FakeLLM(), decides=False) as http:
        await asked(http, **sent)
        judged_ = await judged(http, **sent)
    assert judged_.json()["action"] == ("BLOCKED" if closed else "NONE")
    assert "the default calibration" in judged_.headers[REASON]
    assert judged_.headers["x-score-id"]


@pytest.mark.parametrize("failure", [LLMUnavailable("The LLM server is down."), RuntimeError("boom")])
async def test_failed_sampling_does_not_fail_the_chat(
    tmp_path: Path, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    llm = FakeLLM(fail_with=[failure])
    async with replica(tmp_path, "one", llm) as http:
        await asked(http)
        await drawn(llm)
        judged_ = await judged(http)
    assert judged_.json() == {"action": "NONE"}
    assert judged_.headers[REASON] in ("The LLM server is down.", "Something went wrong in the service.")
    assert "boom" not in str(judged_.headers)
    assert "guardrail_unscored" in caplog.text
    assert SECRET not in caplog.text


async def test_verdict_has_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = FakeLLM(default=UNANIMOUS, gate=asyncio.Event())
    async with replica(tmp_path, "one", llm) as http:
        monkeypatch.setattr(guardrail, "WAIT_S", 0.1)
        await asked(http)
        await pending(llm)
        assert (await judged(http)).headers[REASON] == "The answers were not drawn in time."
        llm.gate.set()
        await drawn(llm)
        assert (await judged(http)).headers["x-decision"] == "answer"


async def test_stored_calls_are_limited_and_sampled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guardrail, "MAX_KNOWN", 3)
    llm = FakeLLM(default=UNANIMOUS)
    async with replica(tmp_path, "one", llm) as http:
        for i in (0, 1, 2, 3, 4, 4):
            await asked(http, litellm_call_id=str(i))
            await asyncio.sleep(0.01)
        responses = [(await judged(http, litellm_call_id=str(i))).headers.get(REASON, "") for i in range(5)]
    assert ["No request call" in response for response in responses] == [True, True, False, False, False]
    assert len(llm.requests) == 5


@pytest.mark.parametrize("value", ["ture", None])
async def test_unreadable_fail_closed_counts_as_true(tmp_path: Path, value: object) -> None:
    sent = {"additional_provider_specific_params": {"target_error": 0.1, "fail_closed": value}}
    async with replica(tmp_path, "one", FakeLLM()) as http:
        await asked(http, **sent)
        judged_ = await judged(http, **sent)
    assert judged_.json()["action"] == "BLOCKED" and "fail_closed" in judged_.headers[REASON]
