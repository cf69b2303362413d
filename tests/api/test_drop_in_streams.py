"""/v1 with streams: the server's own events, with the score on the last one."""

import asyncio
import json
from typing import Any

import pytest

from service.llm import forward
from service.proxy import stream as streams
from tests.support.drop_in import QUESTION, DropIn, before, events_of
from tests.support.openai_server import MODEL, Exchange, answers, drop, hang, once, pieces


def event(
    delta: dict[str, Any] | None = None, finish: str | None = None, index: int = 0, **more: Any
) -> bytes:
    choices = [] if delta is None else [{"index": index, "delta": delta, "finish_reason": finish}]
    chunk = {"id": "chatcmpl-1", "model": MODEL, "choices": choices, **more}
    return b"data: %b\n\n" % json.dumps(chunk).encode()


BEGIN = event({"role": "assistant", "content": ""})
TEXT = event({"content": "Par"}) + event({"content": "is"})
FINISH = event({}, "stop")
USAGE = event(usage={"prompt_tokens": 3, "completion_tokens": 2})
DONE = b"data: [DONE]\n\n"
WHOLE = BEGIN + TEXT + FINISH + USAGE + DONE


async def stream(made: DropIn, mode: str = "on", **body: Any) -> Any:
    return await made.ask(mode, stream=True, **body)


def check_carried(content: bytes, finish: bytes = FINISH) -> dict[str, Any]:
    """Check that the other events are the server's own bytes; return the uncertainty of the stream."""
    [carrier] = [item for item in events_of(content) if "uncertainty" in item]
    [own] = events_of(finish)
    result: dict[str, Any] = carrier.pop("uncertainty")
    assert carrier["choices"][0]["delta"].pop("uncertainty") == result
    assert carrier == own
    return result


async def test_finishing_chunk_has_the_score() -> None:
    async with before(pieces(WHOLE)) as made:
        response = await stream(made)
        kept = await made.scored(response.headers["x-score-id"])
    carried = check_carried(response.content)
    assert response.content.startswith(BEGIN + TEXT) and response.content.endswith(b"\n\n" + USAGE + DONE)
    assert response.headers["content-type"] == "text/event-stream"
    assert (carried["status"], carried["candidate"]["mode"], carried["num_samples"]) == ("scored", 0, 5)
    assert kept == carried and carried["id"] == response.headers["x-score-id"]


async def test_usage_on_the_chunk_that_finishes() -> None:
    finish = event({"content": "is"}, "stop", usage={"prompt_tokens": 3})
    async with before(pieces(BEGIN, event({"content": "Par"}), finish, DONE)) as made:
        content = (await stream(made)).content
    own = event({}, "stop", usage={"prompt_tokens": 3})
    assert check_carried(content, own)["candidate"]["mode"] == 0
    # The text on it was forwarded before, without waiting for the score.
    words = events_of(content)[-2]
    assert (words["choices"], "usage" in words) == (
        [{"index": 0, "delta": {"content": "is"}, "finish_reason": None}],
        False,
    )


async def test_sampling_starts_after_the_answer_has_started() -> None:
    go = asyncio.Event()

    async def rest(exchange: Exchange) -> None:
        await go.wait()
        exchange.writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(TEXT + FINISH), TEXT + FINISH))

    async with before(pieces(BEGIN, then=rest)) as made:
        response_ = made.http.stream("POST", "/v1/chat/completions", json=QUESTION | {"stream": True})
        async with asyncio.timeout(60), response_ as response:
            parts = response.aiter_bytes()
            assert await anext(parts) == BEGIN  # the role, without a token
            await asyncio.sleep(0.2)  # for samples that began too early to arrive
            assert [body.get("n") for body in made.server.bodies] == [None]
            go.set()
            content = b"".join([part async for part in parts])
        assert check_carried(content)["status"] == "scored"
        assert [body.get("n") for body in made.server.bodies] == [None, 5]


async def test_last_chunk_waits_until_the_deadline_with_keepalives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.02)
    go = asyncio.Event()
    async with before(pieces(WHOLE), once(go, answers("Paris")), chat_deadline_s=0.2) as made:
        content = (await stream(made)).content
        carried = check_carried(content)
        assert carried["status"] == "pending" and b"\n: " in content
        go.set()
        assert (await made.scored(carried["id"]))["num_samples"] == 5


async def test_words_of_another_choice_do_not_wait_for_the_score() -> None:
    go, content = asyncio.Event(), b""
    other = event({"content": "Lyon"}, index=1) + event({}, "stop", index=1)
    async with before(pieces(BEGIN, TEXT, FINISH, other, DONE), once(go, answers("Paris"))) as made:
        body = QUESTION | {"stream": True, "n": 2}
        response_ = made.http.stream("POST", "/v1/chat/completions", json=body)
        async with asyncio.timeout(60), response_ as response:
            async for part in response.aiter_bytes():
                content += part
                if b"Lyon" in content:
                    go.set()  # the samples arrive only after the caller has the second answer
    assert check_carried(content)["status"] == "scored"


async def test_words_of_another_choice_keep_their_order() -> None:
    """One chunk ends the first choice and has words of the second; so has a later one."""

    def both(first: dict[str, Any], second: str, reason: str | None = None) -> bytes:
        choices = [
            {"index": 0, "delta": first, "finish_reason": reason},
            {"index": 1, "delta": {"content": second}, "finish_reason": None},
        ]
        return b"data: %b\n\n" % json.dumps({"model": MODEL, "choices": choices}).encode()

    sent = (both({"content": "A"}, "one "), both({}, "two ", "stop"), both({}, "three "))
    last = event({"content": "four"}, index=1) + event({}, "stop", index=1)
    async with before(pieces(*sent, last, DONE), answers("A")) as made:
        response = await made.ask(stream=True, n=2)
    words = {0: "", 1: ""}
    for chunk in events_of(response.content):
        for choice in chunk["choices"]:
            words[choice["index"]] += choice["delta"].get("content") or ""
    assert words == {0: "A", 1: "one two three four"}
    [carrier] = [chunk for chunk in events_of(response.content) if "uncertainty" in chunk]
    assert carrier["uncertainty"]["status"] == "scored"


async def test_a_server_that_does_not_end_its_stream_does_not_delay_the_score() -> None:
    seen = asyncio.Event()

    async def waiting(exchange: Exchange) -> None:
        await seen.wait()
        exchange.writer.write(b"0\r\n\r\n")

    content = b""
    async with before(pieces(BEGIN, TEXT, FINISH, USAGE, then=waiting), answers("Paris")) as made:
        body = QUESTION | {"stream": True}
        response_ = made.http.stream("POST", "/v1/chat/completions", json=body)
        async with asyncio.timeout(60), response_ as response:
            async for part in response.aiter_bytes():
                content += part
                if b'"usage"' in content:
                    seen.set()
    assert check_carried(content)["status"] == "scored"


async def test_stream_without_a_finishing_chunk_is_scored_for_later() -> None:
    async with before(pieces(BEGIN, TEXT, DONE)) as made:
        response = await stream(made)
        assert response.content == BEGIN + TEXT + DONE
        assert (await made.scored(response.headers["x-score-id"]))["candidate"]["mode"] == 0


@pytest.mark.parametrize("mode", ["off", "on"])
@pytest.mark.parametrize("cut", [0, 5])
async def test_data_before_a_broken_connection_is_delivered_with_an_error(mode: str, cut: int) -> None:
    async with before(pieces(BEGIN + TEXT + FINISH[:cut], then=drop)) as made:
        response = await stream(made, mode)
        await made.at_rest()
        if mode != "off":
            kept = await made.scored(response.headers["x-score-id"], "failed")
            assert kept["warning"]["code"] == "llm_unavailable"
    assert response.content.startswith(BEGIN + TEXT)
    error = events_of(response.content)[-1]["error"]
    assert (error["type"], error["code"]) == ("server_error", "llm_unavailable")


@pytest.mark.parametrize("mode", ["async", "on"])
async def test_connection_broken_after_the_whole_answer_keeps_the_score(mode: str) -> None:
    async with before(pieces(BEGIN, TEXT, FINISH, then=drop)) as made:
        content = (await stream(made, mode)).content
        uncertainties = [body["uncertainty"] for body in events_of(content) if "uncertainty" in body]
        assert uncertainties[0]["status"] == ("scored" if mode == "on" else "pending")
        assert (await made.scored(uncertainties[0]["id"]))["candidate"]["mode"] == 0
    assert events_of(content)[-1]["error"]["code"] == "llm_unavailable"


@pytest.mark.parametrize("mode", ["off", "async"])
@pytest.mark.parametrize("is_stream", [False, True])
async def test_abstaining_is_refused_without_waiting(mode: str, is_stream: bool) -> None:
    async with before(pieces(WHOLE)) as made:
        response = await made.ask(mode, stream=is_stream, eigencal={"abstain": True, "target_error": 0.1})
        assert not made.server.requests
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (422, "invalid_request") and "abstain" in error["message"]


@pytest.mark.parametrize("begin", [b"data: ", b""])
async def test_an_event_without_end_breaks_the_stream_off_in_words(
    begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "MAX_WHOLE_BYTES", 2000)
    async with before(pieces(begin + b"x" * 3000, then=hang)) as made:
        response = await made.ask(stream=True)
        await made.at_rest()
    assert "longer than the service accepts" in response.text.splitlines()[-2]


async def test_stream_with_too_much_text_continues_without_a_score(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forward, "MAX_WHOLE_BYTES", 1000)
    sent = BEGIN + TEXT * 30 + FINISH + DONE
    async with before(pieces(sent)) as made:
        response = await stream(made)
        score = await made.scored(response.headers["x-score-id"], "not_scored")
    assert (response.content, score["warning"]["code"]) == (sent, "incomplete")


async def test_stream_ended_by_its_connection_is_complete_only_with_a_finish_reason() -> None:
    async def dies(exchange: Exchange) -> None:
        await exchange.start_stream()  # neither a length nor chunks
        exchange.writer.write(BEGIN)
        exchange.writer.close()

    for mode in ("off", "on"):
        async with before(dies) as made:
            response = await made.ask(mode, stream=True)
        assert response.content.startswith(BEGIN)
        assert events_of(response.content)[-1]["error"]["code"] == "llm_unavailable"
