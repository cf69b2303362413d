"""The drop-in, and verifying."""

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

BROKEN_OFF = 502  # the status that an error inside a stream would have had
ChatMode = Literal["on", "async", "off"]


class ChatOptions(TypedDict, total=False):
    """How to score the answer of a chat: the field `eigencal` of the drop-in."""

    effort: Literal["none", "low", "medium", "high", "auto"]
    """How many answers to draw beside it; `none`: it is judged by its own log-probability."""
    num_samples: int
    """In place of `effort`: how many, 2..256."""
    target_error: float
    """Share of wrong ones allowed among the answers let through, 0..1: asks for a `decision`."""
    confidence: float
    """Confidence with which the target is kept, 0..1."""
    calibration: str
    """`active`, `none`, or the id of a calibration."""
    claims: bool
    """Whether to score the answer claim by claim, too. Left out: where it is long."""
    mark: bool
    """Whether to say what in its text a reader should doubt, and why: `uncertainty.marks`, and `claims`."""
    abstain: bool
    """Whether a decision to abstain replaces the answer; not of a stream. Where the service abstains by its
    settings it does so in any case."""


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
    # The LLM server's own call: what it may have begun is not begun twice.
    return Call("POST", "/v1/chat/completions", ChatCompletion, body, headers=headers, is_idempotent=False)


class _Chunks:
    """The pieces of a streamed answer, line by line; one without `[DONE]` at its end was cut."""

    def __init__(self) -> None:
        self._is_complete = False

    def parse(self, line: bytes) -> ChatChunk | None:
        """Return the piece that a line tells; None for signs of life and the end.

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
        """Raise APIConnectionError where the answer was cut."""
        if not self._is_complete:
            raise APIConnectionError("The streamed answer was cut: it ended without `[DONE]`.")


class Chat(SyncAPIClient):
    """Calls of the drop-in, and verifying."""

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
        """Ask the LLM through the drop-in: its answer, and how uncertain it is.

        Args:
            messages: The turns, as for OpenAI's API.
            eigencal: How to score the answer.
            mode: `on`: wait for the score; `async`: it comes by its id; `off`: no score. None: as set there.
            timeout_s: See `Client`.
            **fields: Everything else goes to the LLM server as it is: `model`, `temperature`, `tools` ...

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
        """Ask the LLM through the drop-in and yield its answer as it comes.

        A stream is begun once: one that breaks off is not asked for again.
        `uncertainty` is on the piece that finishes the answer. Arguments as for `chat`, but that `timeout_s`
        bounds the silence between pieces.

        Raises:
            APIStatusError: The call was refused, or the LLM server broke off the answer.
            APIConnectionError: The answer was cut; the pieces that came are complete.
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
        """Judge an answer that you have by answers that the LLM draws to its question.

        Args:
            question: What was asked.
            answer: What is judged.
            threshold: Least probability of being right, 0..1, that is not to be escalated.
            context: What the question is asked about: a system message before it.
            timeout_s: See `Client`.

        Returns:
            `confidence`, the probability that the answer is right, 0..1, and whether it is below `threshold`.

        Raises:
            ServerError: With code `no_probability`: no calibration that fits tells a probability.
        """
        body = {"question": question, "answer": answer, "threshold": threshold, "context": context}
        return self._send(Call("POST", "/verify", Verified, without_none(body)), timeout_s)


class AsyncChat(AsyncAPIClient):
    """The same, awaited."""

    chat = awaited(Chat.chat)
    verify = awaited(Chat.verify)

    async def models(self, *, timeout_s: float | None = None) -> tuple[Model, ...]:
        """Do as `Client.models` does."""
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
        """Do as `Client.stream_chat` does."""
        call, chunks = _chat_call(messages, eigencal, mode, {**fields, "stream": True}), _Chunks()
        async with aclosing(self._lines(call, self._limit_s(timeout_s))) as lines:
            async for line in lines:
                if (chunk := chunks.parse(line)) is not None:
                    yield chunk
        chunks.end()
