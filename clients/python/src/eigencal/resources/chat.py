"""Chats through the OpenAI-compatible drop-in, and verifying."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from typing import Any, Literal, TypedDict

from pydantic import ValidationError

from eigencal._base_client import AsyncAPIClient, Call, SyncAPIClient, awaited, without_none
from eigencal._exceptions import APIConnectionError, UnexpectedResponseError, error_of_problem
from eigencal._result import Result
from eigencal._results import ChatChunk, ChatCompletion, Model
from eigencal.types import Verified

BROKEN_OFF = 502  # HTTP status of an error inside a stream
ChatMode = Literal["on", "async", "off"]


class ChatOptions(TypedDict, total=False):
    """Scoring options of a chat: the field `eigencal` of the drop-in."""

    num_samples: int | Literal["auto"]
    """Number of further answers to sample, 0..256. 0: score the answer by its own log-probability. `auto`: as
    many as the decision needs."""
    target_error: float
    """Allowed share of wrong answers among the answers let through, 0..1. Adds a `decision`."""
    confidence: float
    """Confidence that `target_error` holds, 0..1."""
    calibration: str
    """`active`, `none`, or the id of a calibration."""
    claims: bool
    """Whether to also score each claim of the answer. Default: if the answer is long."""
    mark: bool
    """Whether to mark doubtful passages of the answer: `uncertainty.marks`, and `claims`."""
    abstain: bool
    """Whether a decision to abstain replaces the answer. False does not override the service's setting."""


class _Models(Result):
    data: tuple[Model, ...] = ()


_MODELS = Call("GET", "/v1/models", _Models)


def _chat_call(
    messages: Sequence[Mapping[str, Any]],
    eigencal: ChatOptions | None,
    mode: str | None,
    fields: Mapping[str, Any],
) -> Call[ChatCompletion]:
    body = without_none({"messages": list(messages), **fields, "eigencal": eigencal})
    headers = without_none({"X-Eigencal": mode})
    # The LLM server may have begun this call, so it is not repeated.
    return Call("POST", "/v1/chat/completions", ChatCompletion, body, headers=headers, is_idempotent=False)


class _Chunks:
    """Parses a streamed answer line by line. A stream without a final `[DONE]` was cut."""

    def __init__(self) -> None:
        self._is_complete = False

    def parse(self, line: bytes) -> ChatChunk | None:
        """Return the chunk of a line; None for keep-alive lines and the end.

        Raises an APIStatusError for an error inside the stream.
        """
        data = line.removeprefix(b"data:").strip()
        self._is_complete = self._is_complete or data == b"[DONE]"
        if data == b"[DONE]" or not line.startswith(b"data:"):
            return None
        try:
            chunk = ChatChunk.model_validate_json(data)
        except ValidationError:
            raise UnexpectedResponseError(
                "A piece of the streamed answer is not as OpenAI's API has it."
            ) from None
        if chunk.model_extra and "error" in chunk.model_extra:
            raise error_of_problem(BROKEN_OFF, json.loads(data))
        return chunk

    def end(self) -> None:
        """Raise APIConnectionError if the answer was cut."""
        if not self._is_complete:
            raise APIConnectionError("The streamed answer was cut: it ended without `[DONE]`.")


class Chat(SyncAPIClient):
    """Calls of the OpenAI-compatible drop-in, and `verify`."""

    def chat(
        self,
        /,
        messages: Sequence[Mapping[str, Any]],
        *,
        eigencal: ChatOptions | None = None,
        mode: ChatMode | None = None,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> ChatCompletion:
        """Ask the LLM through the drop-in; return its answer with a score.

        Args:
            messages: The turns, as in OpenAI's API.
            eigencal: How to score the answer.
            mode: `on`: wait for the score; `async`: fetch it later by its id; `off`: no score. None: the
                service's setting.
            timeout_s: See `Client`.
            **fields: Further fields for the LLM server, sent unchanged: `model`, `temperature`, `tools` ...

        Returns:
            The answer, with `content` and `uncertainty`.
        """
        return self._send(_chat_call(messages, eigencal, mode, fields), timeout_s)

    def stream_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        eigencal: ChatOptions | None = None,
        mode: ChatMode | None = None,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> Iterator[ChatChunk]:
        """Ask the LLM through the drop-in and yield its answer in chunks.

        A broken stream is not retried. The chunk that finishes the answer has `uncertainty`. Arguments are
        as for `chat`, except that `timeout_s` limits the time between chunks.

        Raises:
            APIStatusError: The call was refused, or the LLM server ended the answer with an error.
            APIConnectionError: The answer was cut; the chunks received so far are complete.
        """
        call, chunks = _chat_call(messages, eigencal, mode, {**fields, "stream": True}), _Chunks()
        with closing(self._lines(call, self._limit_s(timeout_s))) as lines:
            yield from filter(None, map(chunks.parse, lines))
        chunks.end()

    def models(self, *, timeout_s: float | None = None) -> tuple[Model, ...]:
        """Return the models of the LLM server."""
        return self._send(_MODELS, timeout_s).data

    def verify(
        self,
        question: str,
        answer: str,
        *,
        threshold: float,
        context: str | None = None,
        timeout_s: float | None = None,
    ) -> Verified:
        """Judge an answer by comparing it with answers that the LLM gives to the question.

        Args:
            question: The question.
            answer: The answer to judge.
            threshold: Probability of being right, 0..1, below which to escalate.
            context: Context of the question, sent as a system message before it.
            timeout_s: See `Client`.

        Returns:
            `confidence`, the probability that the answer is right, 0..1, and whether it is below `threshold`.

        Raises:
            ServerError: With code `no_probability`: no matching calibration gives a probability.
        """
        body = {"question": question, "answer": answer, "threshold": threshold, "context": context}
        return self._send(Call("POST", "/verify", Verified, without_none(body)), timeout_s)


class AsyncChat(AsyncAPIClient):
    """The asynchronous version of `Chat`."""

    chat = awaited(Chat.chat)
    verify = awaited(Chat.verify)

    async def models(self, *, timeout_s: float | None = None) -> tuple[Model, ...]:
        """Return the models of the LLM server."""
        return (await self._send(_MODELS, timeout_s)).data

    async def stream_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        eigencal: ChatOptions | None = None,
        mode: ChatMode | None = None,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> AsyncIterator[ChatChunk]:
        """Ask the LLM and yield its answer in chunks. See `Client.stream_chat`."""
        call, chunks = _chat_call(messages, eigencal, mode, {**fields, "stream": True}), _Chunks()
        async with aclosing(self._lines(call, self._limit_s(timeout_s))) as lines:
            async for line in lines:
                if (chunk := chunks.parse(line)) is not None:
                    yield chunk
        chunks.end()
