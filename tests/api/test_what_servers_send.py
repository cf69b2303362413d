"""Responses of real LLM and embedding servers that differ from OpenAI's format: read or clearly refused."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.embedding.http import HttpEmbedder
from service.errors import EmbedderRefusal
from service.llm.client import LLM
from tests.support import drop_in
from tests.support.drop_in import QUESTION, events_of
from tests.support.embeddings_server import EmbeddingsServer
from tests.support.openai_server import (
    MODEL,
    Behaviour,
    Exchange,
    OpenAIServer,
    answers,
    completion,
    pieces,
    status,
)
from tests.support.operator_world import ended
from tests.support.replica_apps import replica_app

WORDS = ("Paris", " was once said,", " but the answer", " is Lyon.")
# On each chunk, as real servers send them: they do not end the answer.
REASONS = ["", "null", "None", "unfinished", "stop", 0]


def chunk(text: str, finish: Any = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return {"id": "chatcmpl-1", "model": MODEL, "choices": [choice], **more}


def sent(*events: Any, done: bool = True) -> bytes:
    """Return a stream of these events."""
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode()


def choosing(finish: str = "stop", logprobs: Any = None, **message: Any) -> Behaviour:
    """Return a behaviour that sends the requested number of copies of this message."""

    async def behave(exchange: Exchange) -> None:
        choice = {"message": {"role": "assistant", **message}, "logprobs": logprobs, "finish_reason": finish}
        choices = [choice | {"index": index} for index in range(exchange.body.get("n") or 1)]
        await exchange.send(200, {"model": MODEL, "choices": choices})

    return behave


PARIS = sent(chunk("Paris"), chunk("", "stop"))


class TestFinishReasons:
    @pytest.mark.parametrize("reason", REASONS)
    async def test_empty_finish_reason_does_not_end_an_answer(self, reason: Any) -> None:
        body = sent(*(chunk(word, reason) for word in WORDS), chunk("", "stop"))
        async with drop_in.before(pieces(body)) as made:
            response = await made.ask(stream=True)
            assert response.text.count("once said") == 1 and '"uncertainty"' in response.text
            score = await made.scored(response.headers["x-score-id"])
            body_ = {"samples": ["Paris"] * 5, "candidate": "".join(WORDS), "calibration": "none"}
            whole = await made.http.post("/score", json=body_)
        assert score["candidate"]["probability"] == pytest.approx(
            whole.json()["candidate"]["probability"], abs=1e-6
        )


class TestErrorsInStreams:
    @pytest.mark.parametrize(
        "error",
        [
            {"object": "error", "message": "CUDA out of memory", "code": 50001},
            {"text": "NETWORK ERROR", "error_code": 50001},
            {"detail": "something of another kind"},
        ],
    )
    async def test_final_event_that_is_not_a_chunk_is_an_error(self, error: Any) -> None:
        async with drop_in.before(pieces(sent(chunk("The capital of"), error))) as made:
            response = await made.ask(stream=True)
            chat = await made.scored(response.headers["x-score-id"], "not_scored")
        assert chat["warning"]["code"] == "incomplete"

    async def test_byte_order_mark_is_ignored(self) -> None:
        async with drop_in.before(pieces(b"\xef\xbb\xbf" + PARIS)) as made:
            response = await made.ask(stream=True)
            score = await made.scored(response.headers["x-score-id"])
        assert response.content.startswith(b"\xef\xbb\xbf"), "it goes on as it came"
        assert score["candidate"]["probability"] > 0.9

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            ({"error": {"message": "Provider returned error", "code": 402}, "id": "gen-1"}, 402),
            ({"choices": [{"index": 0, "error": {"message": "Provider returned error", "code": 402}}]}, 402),
            ({"success": False, "errors": [{"message": "Provider returned error"}]}, 500),
            ({"detail": "Provider returned error"}, 500),
        ],
    )
    async def test_an_error_with_status_200_is_read_as_that_error(self, error: Any, code: int) -> None:
        async with drop_in.before(status(200, error), status(200, error)) as made:
            scored = await made.score()
        problem = scored.json()
        assert (scored.status_code, problem["code"], problem["llm_status"]) == (502, "llm_error", code)
        assert "Provider returned error" in problem["llm_message"]

    async def test_outage_with_status_200_is_retried(self) -> None:
        async with drop_in.before(answers("Paris")) as made:
            made.server.play(status(200, {"error": {"message": "overloaded", "code": 503}}))
            assert (await made.score()).status_code == 200


@pytest.mark.parametrize("media_type", ["", "text/plain", "application/json"])
async def test_whole_answer_to_a_stream_request_is_scored_and_streamed(media_type: str) -> None:
    async def whole(exchange: Exchange) -> None:
        data = json.dumps(completion(exchange, ["Paris"] * exchange.body.get("n", 1), "stop")).encode()
        kind = {"content-type": media_type} if media_type else {}
        await exchange.start(200, {**kind, "content-length": str(len(data))})
        exchange.writer.write(data)
        await exchange.writer.drain()

    async with drop_in.before(whole, whole) as made:
        chat = await made.ask(stream=True)
    first, last, _ = events_of(chat.content)
    assert chat.headers["content-type"] == "text/event-stream"
    assert first["choices"][0]["delta"]["content"] == "Paris"
    assert last["uncertainty"]["status"] == "scored"


@pytest.mark.parametrize(
    "media_type",
    ["", "text/plain", "Text/Event-Stream; charset=utf-8", "application/json", "application/x-ndjson"],
)
@pytest.mark.parametrize("mode", ["off", "on"])
async def test_stream_of_any_media_type_is_forwarded(media_type: str, mode: str) -> None:
    read = asyncio.Event()

    async def own(exchange: Exchange) -> None:
        await exchange.start(200, {"content-type": media_type} if media_type else {})
        exchange.writer.write(sent(chunk("Paris"), done=False))
        await exchange.writer.drain()
        await read.wait()  # the rest is sent only after the caller has the first chunk
        exchange.writer.write(sent(chunk("", "stop")))
        exchange.writer.close()

    async with drop_in.before(own) as made, asyncio.timeout(60):
        body = QUESTION | {"stream": True}
        headers = {"X-Eigencal": mode}
        async with made.http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
            received = b""
            async for piece in response.aiter_raw():
                received += piece
                if b"Paris" in received:
                    read.set()
    assert b"[DONE]" in received
    assert (b'"uncertainty"' in received) == (mode == "on")


class TestOddParts:
    @pytest.mark.parametrize(
        "logprobs",
        [0, 3.5, [], [-0.1], "none", True, {"content": [-0.1]}, {"content": ["Paris"]}, {"tokens": 5}],
        ids=str,
    )
    async def test_logprobs_in_another_format_are_ignored(self, logprobs: Any) -> None:
        drawn = choosing(content="Paris", logprobs=logprobs)
        async with drop_in.before(drawn, drawn) as made:
            scored = await made.score()
            chat = await made.ask()
        assert (scored.status_code, scored.json()["evidence"]) == (200, None)
        assert chat.json()["uncertainty"]["status"] == "scored"

    async def test_the_text_parts_of_a_message_are_joined(self) -> None:
        parts = [
            {"type": "thinking", "thinking": [{"type": "text", "text": "It is not Lyon."}]},
            {"type": "text", "text": "Par"},
            {"type": "text", "text": None},
            None,
            "is",
        ]

        drawn = choosing(content=parts)
        async with drop_in.before(drawn, drawn) as made:
            scored = await made.score()
            chat = await made.ask()
        assert scored.json()["answer"] == "Paris"
        assert chat.json()["uncertainty"]["candidate"]["probability"] > 0.9


def with_tokens(content: str, *tokens: tuple[str, float]) -> Behaviour:
    entries = [{"token": token, "logprob": value} for token, value in tokens]
    return choosing(content=content, logprobs={"content": entries})


class TestLogProbabilitiesOfAnotherText:
    @pytest.mark.parametrize(
        ("text", "tokens"),
        [
            ("Paris.", [("Hmm", -3.0), (", France.", -2.0), ("Paris", -0.1), (".", -0.1)]),
            ("Paris.", [("Paris", -0.1), (".", -0.1), ("Paris", -0.1), (".", -0.1)]),
            ("Paris.", [("Lyon", -0.1), (".", -0.1)]),
            ("Paris.", [("Par", -0.1)]),
            ("Paris.", [("Paris", -0.1), (".", -0.1), (" Lyon is another town, and Nice is, too", -9.0)]),
            ("\u041f\u0430\u0440\u0438\u0436", [("\u041b\u0438\u043e\u043d", -0.1)]),
            ("\u5317\u4eac", [("\u4e0a\u6d77", -0.1)]),
            ("Paris.", [("<|im_end|>", -0.1)]),
            ("Paris.", [("", -0.1), ("", -0.1)]),
        ],
        ids=["reasoning", "doubled", "other", "begin", "more", "Russian", "Chinese", "end alone", "empty"],
    )
    async def test_tokens_of_another_text_are_not_evidence(
        self, text: str, tokens: list[tuple[str, float]]
    ) -> None:
        server = with_tokens(text, *tokens)
        async with drop_in.before(server, server) as made:
            scored = (await made.score()).json()
            chat = (await made.ask(eigencal={"num_samples": 0})).json()["uncertainty"]
        assert scored["evidence"] is None
        assert (chat["status"], chat["warning"]["code"]) == ("not_scored", "no_log_probability")
        assert "another text" in chat["warning"]["message"]

    @pytest.mark.parametrize(
        ("text", "tokens"),
        [
            pytest.param("Paris.", ["Paris", ".", "<|im_end|>"], id="end"),
            pytest.param("Paris.", ["\u0120Paris", ".", "</s>"], id="vocabulary"),
            pytest.param("Paris.", ["Paris", ".", "\n", "Q", ":"], id="stop string"),
            pytest.param("\u5317\u4eac", ["\u00e5\u012e\u0139", "\u00e4\u00ba\u00ac"], id="Chinese"),
            pytest.param("Mus\u00e9e d'Orsay", ["Mus", "\u00c3\u00a9", "e", " d'", "Orsay"], id="accent"),
            pytest.param("<b>Paris</b>", ["<", "b", ">", "Paris", "</", "b", ">", ""], id="markup"),
            pytest.param("Paris.", ["token_id:3681", "token_id:13"], id="ids"),
            pytest.param("\u5317\u4eac", ["\u5317", "\u4eac", "<|im_end|>"], id="Chinese as text"),
            pytest.param("\u5317\u9f98 1", ["\u5317", "\ufffd", "\ufffd", " ", "1"], id="character parts"),
            pytest.param("\u5317\u4eac", ["bytes:\\xe5\\x8c", "bytes:\\x97", "\u4eac"], id="escaped bytes"),
            pytest.param("\u5317", ["<0xE5>", "<0x8C>", "<0x97>"], id="byte tokens"),
            pytest.param(
                "\u041f\u0430\u0440\u0438\u0436 2024",
                ["\u00d0\u0141\u00d0\u00b0\u00d1\u0122", "\u01202024"],
                id="Russian in bytes",
            ),
        ],
    )
    async def test_tokens_in_server_specific_formats_are_evidence(self, text: str, tokens: list[str]) -> None:
        server = with_tokens(text, *((token, -0.1) for token in tokens))
        async with drop_in.before(server, server) as made:
            scored = (await made.score()).json()
        assert scored["evidence"]["mean_logprob"] == pytest.approx(-0.1 * len(tokens))

    async def test_alternatives_are_requested_if_logprobs_need_them(self) -> None:
        async def behave(exchange: Exchange) -> None:
            with_them = exchange.body.get("logprobs") and exchange.body.get("top_logprobs")
            await (with_tokens("Paris", ("Paris", -0.1)) if with_them else answers("Paris"))(exchange)

        async with drop_in.before(behave, behave) as made:
            evidence = [(await made.score()).json()["evidence"] for _ in range(3)]
        assert [item is not None for item in evidence] == [False, True, True]

    async def test_server_without_logprobs_is_asked_only_twice(self) -> None:
        async with drop_in.before(answers("Paris")) as made:
            for _ in range(4):
                await made.score()
        assert [bool(body.get("logprobs")) for body in made.server.bodies] == [True, True, False, False]


class TestContextsThatAreFull:
    @pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
    async def test_samples_use_the_token_limit_of_the_call(self, name: str) -> None:
        message = "This model's maximum context length is 4096 tokens. However, you requested 4200 tokens."

        def refuses(body: dict[str, Any]) -> str | None:
            return message if body.get(name, 999) > limit else None

        limit, server = 256, refusing(refuses)
        async with drop_in.before(server, server) as made:
            assert (await made.ask(**{name: 16})).json()["uncertainty"]["status"] == "scored"
            limit = 100
            document = (await made.ask(**{name: 16})).json()["uncertainty"]
        assert document["status"] == "scored"
        assert made.server.bodies[-1][name] == 16 and made.server.bodies[-1]["n"] == 5

    async def test_failed_score_gives_the_reason(self) -> None:
        message = "This model's maximum context length is 4096 tokens."
        async with drop_in.before(answers("Paris"), refusing(lambda _: message)) as made:
            document = (await made.ask()).json()["uncertainty"]
        assert document["status"] == "failed" and message in document["warning"]["message"]


class TestHistories:
    @pytest.mark.parametrize("mode", ["off", "async", "on"])
    async def test_scores_of_earlier_turns_are_not_forwarded(self, mode: str) -> None:
        score = {"id": "scr_1", "status": "scored"}
        earlier = {"role": "assistant", "content": "Paris.", "uncertainty": score}
        user = {"role": "user", "content": 'And "uncertainty"?', "uncertainty": 1}
        async with drop_in.before(answers("Lyon")) as made:
            response = await made.ask(mode, messages=[*QUESTION["messages"], earlier, user])
            await made.at_rest()
        assert response.status_code == 200
        for body in made.server.bodies:
            _, assistant, own = body["messages"]
            assert assistant == {"role": "assistant", "content": "Paris."}
            assert own == user, "a field of the user's own is none of ours"

    @pytest.mark.parametrize(
        "says_nothing",
        [
            {"tools": []},
            {"skip_special_tokens": True},
            {"functions": [], "tool_choice": None},
            {"metadata": {}, "parallel_tool_calls": True},
            {"tools": [], "tool_choice": "auto", "parallel_tool_calls": False},
            {"chat_template_kwargs": {"thinking": None}, "include_reasoning": True},
        ],
        ids=str,
    )
    async def test_empty_fields_do_not_prevent_a_matching_calibration(
        self, says_nothing: dict[str, Any]
    ) -> None:
        no_value = {"tool_calls": [], "annotations": [], "reasoning_content": "", "refusal": None}
        own = {"role": "assistant", "content": "Paris", "provider_specific_fields": {"refusal": None}}
        turns = [*QUESTION["messages"], own | no_value, *QUESTION["messages"]]
        plain = [{name: turn[name] for name in ("role", "content")} for turn in turns]
        async with drop_in.before(answers("Paris")) as made:
            kinds = []
            for body in ({"messages": plain}, {"messages": turns, **says_nothing}):
                document = (await made.ask(**body)).json()["uncertainty"]
                kinds.append([(warning["code"], warning.get("differs")) for warning in document["warnings"]])
        assert kinds[0] == kinds[1]


Refuses = Callable[[dict[str, Any]], str | None]


def refusing(refuses: Refuses, code: int = 400) -> Behaviour:
    """Refuse calls with the message of `refuses`, if any; answer the others."""

    async def behave(exchange: Exchange) -> None:
        message = refuses(exchange.body)
        answer = answers("Paris") if message is None else status(code, {"error": {"message": message}})
        await answer(exchange)

    return behave


class TestRefusedParameters:
    @pytest.mark.parametrize("code", [400, 500])
    async def test_several_choices_are_requested_one_by_one(self, code: int) -> None:
        server = refusing(lambda body: "candidate count must be 1" if body.get("n", 1) > 1 else None, code)
        async with drop_in.before(server, server) as made:
            scores = [await made.score() for _ in range(2)]
        assert [(scored.status_code, scored.json()["num_samples"]) for scored in scores] == [(200, 5)] * 2
        refused = [body for body in made.server.bodies if body.get("n", 1) > 1]
        # Once in each dialect with several choices; a 500 may pass, so that call is repeated.
        assert len(refused) == 2 + (code == 500)

    async def test_top_p_without_effect_is_not_sent(self) -> None:
        message = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
        server = refusing(lambda body: message if "top_p" in body else None)
        async with drop_in.before(server, server) as made:
            scored = await made.score()
            response = await made.score(sampling={"top_p": 0.5})
        assert scored.status_code == 200
        assert response.json()["code"] == "llm_error", "a top_p with an effect is not left out silently"

    @pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
    async def test_token_limit_is_sent_under_the_accepted_name(self, name: str) -> None:
        other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}[name]
        server = refusing(lambda body: f"Unsupported parameter: {other}" if other in body else None)
        async with drop_in.before(server, server) as made:
            scored = await made.score()
            chat = await made.ask(**{name: 256})
        assert scored.status_code == 200, scored.text
        assert chat.json()["uncertainty"]["status"] == "scored"
        assert all(body[name] == 256 for body in made.server.bodies if name in body)


NO_CREDIT = {
    "error": {
        "message": "You exceeded your current quota, please check your plan and billing details.",
        "type": "insufficient_quota",
        "code": "insufficient_quota",
    }
}


class TestPermanentRefusals:
    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (NO_CREDIT, "check your plan"),
            ({"error": {"message": "Your account is not active.", "code": "billing_not_active"}}, "active"),
        ],
        ids=["OpenAI", "inactive"],
    )
    async def test_a_score_is_not_retried_without_credit(self, error: Any, words: str) -> None:
        async with drop_in.before(answers("Paris"), status(429, error)) as made:
            scored = await made.score()
        problem = scored.json()
        assert (scored.status_code, problem["code"], problem["retryable"]) == (502, "llm_error", False)
        assert words in problem["llm_message"]
        assert len(made.server.bodies) == 1

    async def test_job_ends_with_the_servers_message(self, tmp_path: Path) -> None:
        async with OpenAIServer(default=status(429, NO_CREDIT)) as server:
            llm = LLM(server.url, model=MODEL)
            async with replica_app(tmp_path, llm=llm, llm_url=server.url) as http:
                rows = [{"prompt": f"question {i}", "reference": "Paris"} for i in range(12)]
                job = await ended(http, await http.post("/calibrate", json={"examples": rows}))
        assert (job["state"], job["error"]["code"]) == ("failed", "llm_error")
        assert "check your plan" in job["error"]["detail"]


@pytest.mark.parametrize("most", [1, 10, 32])
@pytest.mark.parametrize("code", [400, 413, 422])
async def test_embedding_batches_shrink_to_the_servers_limit(most: int, code: int) -> None:
    sizes = list[int]()

    class Small(EmbeddingsServer):
        async def _embed(self, exchange: Exchange) -> None:
            sizes.append(len(exchange.body["input"]))
            if sizes[-1] > most:
                return await status(code, {"error": f"batch size {sizes[-1]} > maximum {most}"})(exchange)
            return await super()._embed(exchange)

    async with Small() as server:
        embedder = HttpEmbedder(server.url, "m")
        await embedder.start()
        texts = [f"text {i}" for i in range(70)]
        first = await embedder.embed(texts)
        alone = [await embedder.embed([text]) for text in texts[:3]]
        refused = sum(size > most for size in sizes)
        await embedder.embed([f"later {i}" for i in range(70)])
        await embedder.stop()
    assert max(sizes) <= 32
    assert first.vectors[:3].tolist() == [answers_.vectors[0].tolist() for answers_ in alone]
    assert sum(size > most for size in sizes) == refused, "the size is remembered"


async def test_vectors_without_index_are_in_the_order_of_the_texts() -> None:
    class Unnumbered(EmbeddingsServer):
        async def _embed(self, exchange: Exchange) -> None:
            vectors = [{"embedding": [float(len(text)), 1.0]} for text in exchange.body["input"]]
            await exchange.send(200, {"data": vectors})

    async with Unnumbered() as server:
        embedder = HttpEmbedder(server.url, "m")
        vectors = (await embedder.embed(["a", "a longer text"])).vectors
        await embedder.stop()
    assert vectors[0, 0] < vectors[1, 0]


@pytest.mark.parametrize("answer", [(429, NO_CREDIT), (200, {"error": {"message": "check your plan"}})])
async def test_exhausted_credit_of_an_embedding_server_is_not_an_outage(answer: tuple[int, Any]) -> None:
    class Refusing(EmbeddingsServer):
        async def _embed(self, exchange: Exchange) -> None:
            await status(*answer)(exchange)

    async with Refusing() as server:
        embedder = HttpEmbedder(server.url, "m")
        with pytest.raises(EmbedderRefusal) as caught:
            await embedder.embed(["a"])
        await embedder.stop()
    assert "check your plan" in caught.value.full_detail
