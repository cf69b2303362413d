"""/v1/responses: the server's own response with a score; the samples are chats with the same turns."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import Unscorable
from service.proxy.answer import without_logprobs
from service.proxy.call import prompt_of
from service.proxy.responses import ResponseAnswer
from tests.api.test_drop_in_calibrated import POLICY, plain
from tests.support.calibrations import Active
from tests.support.drop_in import DropIn, drop_in, events_of
from tests.support.openai_server import MODEL, Behaviour, Exchange, OpenAIServer, answers, pieces, status
from tests.support.responses import events, message, response, wire

QUESTION = {"model": MODEL, "input": "What is the capital of France?"}
TURNS = [{"role": "user", "content": "What is the capital of France?"}]
LOGPROBS = "message.output_text.logprobs"
NOT_STORED = {"store": False}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": None}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
REASONING = {"id": "rs_1", "type": "reasoning", "summary": []}
TOKENS = [{"token": text, "logprob": -0.5, "top_logprobs": []} for text in ("Pa", "ris")]
COMMENT = message("I think of Lyon, no, Nice.", phase="commentary")


def refusing(text: str = "I cannot.") -> dict[str, Any]:
    return {**message(""), "content": [{"type": "refusal", "refusal": text}]}


def streamed(*output: dict[str, Any], **more: Any) -> Behaviour:
    return pieces(*map(wire, events(*output, **more)))


@asynccontextmanager
async def before(
    own: Behaviour, draws: Behaviour | None = None, active: Active | None = None, **settings: Any
) -> AsyncIterator[DropIn]:
    """Serve the drop-in in front of a server with these behaviours for responses and for samples."""

    async def behave(exchange: Exchange) -> None:
        await (own if exchange.path.startswith("/v1/responses") else draws or answers("Paris"))(exchange)

    async with OpenAIServer(default=behave) as server, drop_in(server, active=active, **settings) as made:
        yield made


async def ask(made: DropIn, mode: str = "on", **body: Any) -> httpx.Response:
    return await made.http.post("/v1/responses", json=QUESTION | body, headers={"X-Eigencal": mode})


def samples(made: DropIn) -> list[dict[str, Any]]:
    return [request.body for request in made.server.requests if request.path == "/v1/chat/completions"]


def scores(answer: httpx.Response, *, stream: bool) -> list[dict[str, Any]]:
    """Return each score in an answer."""
    whole = [event.get("response", {}) for event in events_of(answer.content)] if stream else [answer.json()]
    return [payload["uncertainty"] for payload in whole if "uncertainty" in payload]


# Answers


async def test_response_is_returned_with_a_score() -> None:
    own = response(REASONING, message("Paris"), big=123456789012345678901234567890)
    async with before(status(200, own)) as made:
        answer = await ask(made, store=True)
        [draw] = samples(made)
        [sent] = [body for body in made.server.bodies if "input" in body]
        kept = await made.scored(answer.headers["x-score-id"])
    body = answer.json()
    score = body.pop("uncertainty")
    assert body == own and kept == score
    assert (score["status"], score["num_samples"], score["candidate"]["mode"]) == ("scored", 5, 0)
    assert (draw["messages"], draw["n"]) == (TURNS, 5)
    assert sent == QUESTION | NOT_STORED, "keys share the server's account"


async def test_no_response_is_stored_without_a_score_either() -> None:
    async with before(status(200, response(message("Paris")))) as made:
        assert "uncertainty" not in (await ask(made, "off", store=True)).json()
        assert made.server.bodies == [QUESTION | NOT_STORED]


async def test_a_call_that_names_store_twice_is_sent_with_one() -> None:
    content = json.dumps(QUESTION)[:-1].encode() + b', "store": true, "store": false}'
    async with before(status(200, response(message("Paris")))) as made:
        headers = {"X-Eigencal": "off", "Content-Type": "application/json"}
        await made.http.post("/v1/responses", content=content, headers=headers)
        [call] = made.server.requests
        refused = await made.http.post("/v1/responses", content=b"\xef\xbb\xbf" + content, headers=headers)
    assert call.data.count(b"store") == 1 and call.body["store"] is False
    assert refused.status_code == 422


async def test_plain_turns_use_the_calibration_of_chats() -> None:
    async with before(status(200, response(message("Paris"))), active=plain()) as made:
        answer = await ask(made, instructions="Be brief.")
        with_tool = (await ask(made, tools=[TOOL])).json()["uncertainty"]
    calibrated = answer.json()["uncertainty"]
    assert calibrated["calibrated"]
    assert float(answer.headers["x-probability-correct"]) == pytest.approx(
        calibrated["probability_correct"], abs=1e-6
    )
    assert with_tool["warnings"][0]["differs"] == ["prompt_shape"]


async def test_tool_with_a_parameter_of_our_fields_name_is_forwarded_unchanged() -> None:
    tool = TOOL | {"parameters": {"type": "object", "properties": {"uncertainty": {"type": "number"}}}}
    async with before(status(200, response(message("Paris")))) as made:
        assert (await ask(made, tools=[tool])).json()["uncertainty"]["status"] == "scored"
        [sent] = [body for body in made.server.bodies if "input" in body]
    assert sent == QUESTION | {"tools": [tool]} | NOT_STORED


UNSCORED: list[tuple[dict[str, Any], str]] = [
    (response(message("Wait."), CALL), "no_text"),
    (response(refusing()), "no_text"),
    (response(message("")), "no_text"),
    (response(REASONING), "no_text"),
    (response(status="failed", error={"code": "server_error", "message": "out of memory"}), "incomplete"),
    ({"id": "resp_1"}, "incomplete"),
    (response({"type": []}), "no_text"),
]


@pytest.mark.parametrize(("own", "code"), UNSCORED, ids=[str(own)[-40:] for own, _ in UNSCORED])
async def test_answer_without_text_has_the_reason_for_no_score(own: dict[str, Any], code: str) -> None:
    async with before(status(200, own)) as made:
        body = (await ask(made)).json()
        await made.at_rest()
    assert {name: value for name, value in body.items() if name != "uncertainty"} == own
    assert (body["uncertainty"]["status"], body["uncertainty"]["warning"]["code"]) == ("not_scored", code)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"previous_response_id": "resp_0"}, "not_convertible"),
        ({"conversation": {"id": "conv_0"}}, "not_convertible"),
        ({"prompt": {"id": "pmpt_0"}}, "not_convertible"),
        ({"previous_response": {"id": "resp_0"}}, "not_convertible"),
        ({"input": [{"type": "item_reference", "id": "msg_0"}]}, "not_convertible"),
        ({"input": [{"id": "msg_0"}]}, "not_convertible"),
        ({"background": True}, "not_convertible"),
        ({"tools": [{"type": "web_search"}]}, "not_convertible"),
        ({"tool_choice": {"type": "mcp", "server_label": "s"}}, "not_convertible"),
        ({"text": {"format": {"type": "grammar"}}}, "not_convertible"),
        ({"input": [{"type": "web_search_call", "id": "ws_0"}]}, "not_convertible"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "not_convertible",
        ),
        ({"input": 7}, "unreadable_request"),
    ],
)
async def test_call_without_a_chat_of_its_turns_is_forwarded(body: dict[str, Any], code: str) -> None:
    async with before(status(200, response(message("Paris")))) as made:
        answer = (await ask(made, **body)).json()
        assert made.server.bodies == [QUESTION | body | NOT_STORED]
    assert answer["output"] == [message("Paris")]
    assert (answer["uncertainty"]["status"], answer["uncertainty"]["warning"]["code"]) == ("not_scored", code)


async def test_missing_route_is_reported_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with before(status(404, {"detail": "Not Found"})) as made:
        answer = await ask(made)
        await made.at_rest()
    assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})
    assert "x-score-id" not in answer.headers
    assert "/v1/responses" in caplog.text


# The chat with the same turns


def called(text: Any, *names: str) -> dict[str, Any]:
    """Return a chat's turn of the assistant with calls of these functions."""
    functions = {f"c{name}": {"name": name, "arguments": "{}"} for name in names}
    calls = [{"id": id_, "type": "function", "function": function} for id_, function in functions.items()]
    return {"role": "assistant", "content": text, "tool_calls": calls}


def call_of(name: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"c{name}", "name": name, "arguments": "{}"}


def output_of(name: str, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"c{name}", "output": output}


def of_tool(name: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{name}", "content": text}


def said(role: str, *texts: str, kind: str = "input_text") -> dict[str, Any]:
    return {"role": role, "content": [{"type": kind, "text": text} for text in texts]}


def plainly(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


LOW = {"detail": "low"}
IMAGE = {"role": "user", "content": [{"type": "input_image", "image_url": "data:a", **LOW}]}
CHAT_IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:a", **LOW}}]}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
CONVERTED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"instructions": "Be brief."}, {"messages": [plainly("system", "Be brief."), *TURNS]}),
    (
        {"input": [plainly("developer", "d"), said("user", "a", "b")]},
        {"messages": [plainly("developer", "d"), said("user", "a", "b", kind="text")]},
    ),
    (
        {"input": [said("user", "a"), message("b"), {**REASONING}, said("user", "c")]},
        {"messages": [plainly("user", "a"), plainly("assistant", "b"), plainly("user", "c")]},
    ),
    (
        {
            "input": [
                plainly("user", "a"),
                message("b"),
                call_of("f") | {"status": "completed"},
                call_of("g"),
                output_of("f", "1"),
                output_of("g", [{"type": "input_text", "text": "2"}]),
                call_of("h"),
            ]
        },
        {
            "messages": [
                plainly("user", "a"),
                called("b", "f", "g"),
                of_tool("f", "1"),
                of_tool("g", "2"),
                called(None, "h"),
            ]
        },
    ),
    (
        {"input": [plainly("user", "a"), call_of("f"), message("b"), output_of("f", "1")]},
        {"messages": [plainly("user", "a"), called("b", "f"), of_tool("f", "1")]},
    ),
    ({"input": [IMAGE]}, {"messages": [CHAT_IMAGE]}),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": False},
        {
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "parallel_tool_calls": False,
        },
    ),
    (
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": SCHEMA, "strict": True},
            }
        },
    ),
    ({"max_output_tokens": 3000}, {"max_tokens": 3000}),
    # Members of chats, which some servers read.
    ({"response_format": {"type": "json_object"}}, {"response_format": {"type": "json_object"}}),
    ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
    (
        {"text": {"verbosity": "low"}, "chat_template_kwargs": {"a": 1}},
        {"verbosity": "low", "chat_template_kwargs": {"a": 1}},
    ),
]


@pytest.mark.parametrize(("body", "chat"), CONVERTED, ids=[str(list(body))[:40] for body, _ in CONVERTED])
async def test_samples_are_chats_with_the_same_turns(body: dict[str, Any], chat: dict[str, Any]) -> None:
    aside = {"store": False, "truncation": "auto", "include": ["reasoning.encrypted_content"], "user": "u"}
    async with before(status(200, response(message("Paris")))) as made:
        assert (await ask(made, **body, **aside)).json()["uncertainty"]["status"] == "scored"
        [draw] = samples(made)
    assert {name: draw.get(name) for name in chat} == chat
    unknown = {"input", "instructions", "text", "reasoning", "max_output_tokens", *aside}
    assert not unknown & draw.keys()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "text", "format", "output", "call_id", "name"]), inner
        )
        | st.sampled_from([{"type": "message"}, {"type": "function_call"}, {"type": "function", "name": "f"}])
    ),
    max_leaves=6,
)
NAMES = ["input", "instructions", "tools", "tool_choice", "text", "reasoning", "include", "prompt"]


@given(st.dictionaries(st.sampled_from(NAMES), values))
def test_any_call_is_converted_or_unscorable(body: dict[str, Any]) -> None:
    try:
        json.dumps(prompt_of(ResponseAnswer().chat_of({"input": "?"} | body)).members)
    except Unscorable as reason:
        assert reason.code in ("unreadable_request", "not_convertible")


EVENT_TYPES = [event["type"] for event in events(REASONING, message("a"), refusing(), CALL)]
MEMBERS = ["output", "type", "content", "text", "delta", "logprobs", "item", "part", "response"]
MEMBERS += ["incomplete_details"]
payloads = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.sampled_from([message("a"), CALL, refusing()]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(MEMBERS), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(MEMBERS), payloads), st.none() | st.sampled_from(EVENT_TYPES))
def test_any_response_and_event_can_be_read_and_stripped(payload: dict[str, Any], kind: str | None) -> None:
    answer, payload = ResponseAnswer(), payload if kind is None else {**payload, "type": kind}
    answer.take(payload)
    for stripped in (answer.let_through(payload, None), answer.withheld(payload, "")):
        assert without_logprobs(stripped)
        assert answer.streamed(stripped, {})


# Streams

OPENAI = events(REASONING, message("Paris"))
UNNUMBERED = [{k: v for k, v in event.items() if k != "sequence_number"} for event in OPENAI]
UNKNOWN = [{"type": "keepalive"}, *OPENAI[:-1], {"type": "x.y", "item": 7}, OPENAI[-1]]
CUT = {"end": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
NO_OUTPUT = {"type": "response.completed", "response": {"model": MODEL}}
SHAPES: dict[str, list[bytes]] = {
    "openai": [*map(wire, OPENAI)],
    "incomplete": [*map(wire, events(message("Paris"), **CUT))],
    "without sequence numbers or types": [wire(event, typed=False) for event in UNNUMBERED],
    "unknown events": [b": hi\n\n", *map(wire, UNKNOWN)],
    "several messages": [*map(wire, events(COMMENT, message("Paris", 1, phase="final_answer")))],
    "done": [*map(wire, OPENAI), b"data: [DONE]\n\n"],
    "no output at the end": [*map(wire, [*OPENAI[:-1], NO_OUTPUT])],
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_last_event_has_the_score_and_others_are_unchanged(shape: str) -> None:
    sent, end = SHAPES[shape], "incomplete" if shape == "incomplete" else "completed"
    async with before(pieces(*sent)) as made:
        answer = await ask(made, stream=True)
        kept = await made.scored(answer.headers["x-score-id"])
    last = next(event for event in sent if f'"response.{end}"'.encode() in event)
    begun, after = b"".join(sent[: sent.index(last)]), b"".join(sent[sent.index(last) + 1 :])
    assert answer.content.startswith(begun) and answer.content.endswith(after)
    [carrier] = [event for event in events_of(answer.content) if "uncertainty" in event.get("response", {})]
    score = carrier["response"].pop("uncertainty")
    assert carrier == events_of(last)[0]
    assert score == kept and score["candidate"]["mode"] == 0
    assert f"event: response.{end}\ndata: ".encode() in answer.content


@pytest.mark.parametrize(
    "last",
    [
        {"type": "error", "code": "server_error", "message": "out of memory"},
        {"type": "response.failed", "response": response(status="failed", error={"message": "x"})},
        {"error": {"code": 500, "message": "out of memory"}},
        None,
    ],
    ids=["error", "failed", "error without a type", "no end"],
)
async def test_stream_without_an_answer_is_forwarded_and_not_scored(last: dict[str, Any] | None) -> None:
    sent = [*map(wire, OPENAI[:-1]), *([wire(last, typed="type" in last)] if last else [])]
    async with before(pieces(*sent)) as made:
        answer = await ask(made, stream=True)
        kept = await made.scored(answer.headers["x-score-id"], "not_scored")
    assert answer.content == b"".join(sent) and kept["warning"]["code"] == "incomplete"


@pytest.mark.parametrize("mode", ["off", "on"])
@pytest.mark.parametrize("is_whole", [False, True])
async def test_stream_ended_by_its_connection_is_complete_after_its_last_event(
    is_whole: bool, mode: str
) -> None:
    ends = events(message("Paris"), instructions="x" * 10_000)
    ends[0]["response"]["instructions"] = "End with [DONE]."

    async def dies(exchange: Exchange) -> None:
        await exchange.start_stream()  # neither a length nor chunks
        exchange.writer.write(b"".join(map(wire, ends if is_whole else ends[:-1])))
        exchange.writer.close()

    async with before(dies) as made:
        answer = await ask(made, mode, stream=True)
    assert ("error" in events_of(answer.content)[-1]) is not is_whole


async def test_last_event_does_not_wait_for_the_end_of_the_connection() -> None:
    scored = asyncio.Event()

    async def until_scored(exchange: Exchange) -> None:
        await exchange.start_stream()
        exchange.writer.write(b"".join(map(wire, OPENAI)))
        await scored.wait()
        exchange.writer.close()

    async with before(until_scored, active=plain()) as made, asyncio.timeout(60):
        body = QUESTION | {"stream": True}
        async with made.http.stream("POST", "/v1/responses", json=body) as answer:
            async for piece in answer.aiter_raw():
                if b'"uncertainty"' in piece:
                    scored.set()


@pytest.mark.parametrize("item", [CALL, refusing(), REASONING], ids=str)
async def test_streamed_answer_without_text_is_not_scored(item: dict[str, Any]) -> None:
    async with before(streamed(item)) as made:
        answer = await ask(made, stream=True)
        await made.at_rest()
    [score] = scores(answer, stream=True)
    assert (score["status"], score["warning"]["code"]) == ("not_scored", "no_text")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("output", "judged"),
    [
        ((COMMENT, message("Paris", 1, phase="final_answer")), "Paris"),
        ((message("Paris", phase="final_answer"), COMMENT | {"id": "msg_1"}), "Paris"),
        (
            (COMMENT, message("Par", 1, phase="final_answer"), message("is", 2, phase="final_answer")),
            "Par\nis",
        ),
        ((COMMENT,), "I think of Lyon, no, Nice."),
        ((message("Paris"), message("It is in France.", 1)), "Paris\nIt is in France."),
        ((COMMENT, message("", 1, phase="final_answer")), "I think of Lyon, no, Nice."),
        (({"type": "compaction", "encrypted_content": "x"}, message("Paris", 1)), "Paris"),
    ],
    ids=[
        "comment first",
        "comment last",
        "two final",
        "only a comment",
        "no phase",
        "no final text",
        "compacted",
    ],
)
def test_final_messages_are_judged(output: tuple[dict[str, Any], ...], judged: str, stream: bool) -> None:
    answer = ResponseAnswer()
    for payload in events(*output) if stream else [response(*output)]:
        answer.take(payload)
    assert answer.candidate().text == judged


@pytest.mark.parametrize(
    "end", [{}, {"output": None}, {"output": []}, {"output": [message("Paris")]}], ids=str
)
def test_final_message_is_known_without_the_items_of_the_last_event(end: dict[str, Any]) -> None:
    answer = ResponseAnswer()
    for event in events(COMMENT, message("Paris", 1, phase="final_answer"))[:-1]:
        answer.take(event)
    answer.take({"type": "response.completed", "response": end})
    assert answer.candidate().text == "Paris"


@pytest.mark.parametrize(
    "empty", [message(""), {"type": "message"}, {"type": "message", "content": "x"}], ids=str
)
@pytest.mark.parametrize("stream", [False, True])
def test_messages_without_text_change_nothing(empty: dict[str, Any], stream: bool) -> None:
    output, answer = (empty, message("Paris", 1, TOKENS), empty), ResponseAnswer()
    sent = [*events(output[1])[:-1], {"type": "response.completed", "response": response(*output)}]
    for payload in sent if stream else [response(*output)]:
        answer.take(payload)
    assert answer.candidate().total_logprob == -1.0


COMPACTION = {"object": "response.compaction", "output": [{"type": "compaction", "encrypted_content": "x"}]}


async def test_compactions_are_forwarded() -> None:
    async with before(status(200, COMPACTION)) as made:
        body = QUESTION | {"eigencal": {"abstain": True}}
        answer = await made.http.post("/v1/responses/compact?api-version=1", json=body)
        [call] = made.server.requests
    assert (answer.json(), call.path, call.body) == (
        COMPACTION,
        "/v1/responses/compact?api-version=1",
        QUESTION,
    )
    assert "x-score-id" not in answer.headers


async def test_no_compaction_where_answers_are_withheld() -> None:
    async with before(status(200, COMPACTION), active=plain(), **POLICY) as made:
        assert (await made.http.post("/v1/responses/compact", json=QUESTION)).status_code == 404
        assert not made.server.requests


# Without samples


def telling(exchange: Exchange) -> dict[str, Any]:
    return message("Paris", tokens=TOKENS if LOGPROBS in exchange.body.get("include", ()) else None)


async def with_logprobs(exchange: Exchange) -> None:
    own = telling(exchange)
    own_behaviour = streamed(own) if exchange.body.get("stream") else status(200, response(own))
    await own_behaviour(exchange)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("asked", [False, True])
async def test_logprobs_are_requested_and_returned_only_if_the_caller_asked(
    asked: bool, stream: bool
) -> None:
    include = ["reasoning.encrypted_content", *([LOGPROBS] if asked else [])]
    async with before(with_logprobs) as made:
        answer = await ask(made, stream=stream, include=include, eigencal={"num_samples": 0})
        assert [body["include"] for body in made.server.bodies] == [["reasoning.encrypted_content", LOGPROBS]]
    [score] = scores(answer, stream=stream)
    assert (score["status"], score["num_samples"]) == ("scored", 0)
    assert score["candidate"]["probability_correct"] is None  # no calibration applies
    assert ("-0.5" in answer.text) is asked


# Abstaining


@pytest.mark.parametrize("stream", [False, True])
async def test_all_messages_are_replaced_by_one_if_the_caller_asks_to_abstain(stream: bool) -> None:
    own = response(REASONING, message("Ni"), message("ce", 1))
    async with before(status(200, own), active=plain()) as made:
        answer = await ask(made, eigencal={"target_error": 0.2, "abstain": True}, stream=stream)
        assert not any(body.get("stream") for body in made.server.bodies)
    whole = events_of(answer.content)[-1]["response"] if stream else answer.json()
    texts = [part["text"] for item in whole["output"] for part in item["content"]]
    assert texts == ["I am not sure enough to answer this."]
    assert (whole["uncertainty"]["withheld"], whole["usage"]) == ("Ni\nce", own["usage"])
    assert answer.headers["x-decision"] == "abstain"


WHOLE = [
    response(REASONING, message("Paris"), refusing()),
    response(message("Par"), CALL, status="incomplete", incomplete_details=CUT["incomplete_details"]),
]


@pytest.mark.parametrize("own", WHOLE, ids=["completed", "incomplete"])
def test_stream_of_a_whole_response_has_the_events_of_openai(own: dict[str, Any]) -> None:
    made = events_of(ResponseAnswer().streamed(own, {"id": "scr_1"}))
    expected = events(*own["output"], end=own["status"], **own)
    assert {event["type"] for event in expected} <= {event["type"] for event in made}
    assert [event["sequence_number"] for event in made] == list(range(len(made)))
    done = [event["item"] for event in made if event["type"] == "response.output_item.done"]
    assert done == own["output"]
    last = {**expected[-1], "sequence_number": len(made) - 1}
    last["response"] |= {"uncertainty": {"id": "scr_1"}}
    assert made[-1] == last


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("item", [CALL, refusing()], ids=["tool call", "refusal"])
async def test_tool_calls_and_refusals_pass_without_their_text(item: dict[str, Any], stream: bool) -> None:
    # vLLM puts log-probabilities, and so the text, into the message, too.
    output = REASONING | {"summary": [{"text": "Nice"}]}, message("Nice") | {"logprobs": ["Nice"]}, item
    if item is not CALL:
        output = output[0], item
    async with before(status(200, response(*output)), active=plain(), **POLICY) as made:
        answer = await ask(made, stream=stream)
    assert "Nice" not in answer.text and scores(answer, stream=stream)
    whole = events_of(answer.content)[-1]["response"] if stream else answer.json()
    assert item in whole["output"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "body", [{"background": True}, {"previous_response_id": "resp_0"}, {"tools": [{"type": "web_search"}]}]
)
async def test_callers_cannot_opt_out_of_abstaining(body: dict[str, Any], stream: bool) -> None:
    async with before(status(200, response(message("Nice"))), active=plain(), **POLICY) as made:
        answer = await ask(made, "off", stream=stream, **body)
    assert "Ask somebody else." in answer.text and "Nice" not in answer.text
