"""The drop-in and what gateways ask."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

from eigencal._async.sending import AsyncSender, lines_of
from eigencal._calls import gateways as calls
from eigencal._models.chat import ChatChunk, ChatCompletion, Model, TextCompletion
from eigencal._models.gateways import GuardrailVerdict, Verified
from eigencal._models.requests import ChatOptions
from eigencal._sending.chunks import chunk_of, cut, is_end


class AsyncGateways(AsyncSender):
    """Calls of the drop-in and of gateways."""

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        eigencal: ChatOptions | None = None,
        mode: Literal["on", "async", "off"] | None = None,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> ChatCompletion:
        """Do as `Client.chat` does, awaited."""
        return await self._send(calls.chat(messages, eigencal, mode, fields), timeout_s)

    async def stream_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        eigencal: ChatOptions | None = None,
        mode: Literal["on", "async", "off"] | None = None,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> AsyncIterator[ChatChunk]:
        """Do as `Client.stream_chat` does, awaited."""
        call = calls.chat(messages, eigencal, mode, {**fields, "stream": True})
        silence_s, ended = self._setup.limit_s(timeout_s), False
        async with self._stream(call, silence_s) as response:
            async for line in lines_of(response, silence_s):
                ended = ended or is_end(line)
                if (chunk := chunk_of(line)) is not None:
                    yield chunk
        if not ended:
            raise cut()

    async def complete(
        self,
        prompt: str,
        *,
        eigencal: ChatOptions | None = None,
        mode: Literal["on", "async", "off"] | None = None,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> TextCompletion:
        """Do as `Client.complete` does, awaited."""
        return await self._send(calls.complete(prompt, eigencal, mode, fields), timeout_s)

    async def models(self, *, timeout_s: float | None = None) -> tuple[Model, ...]:
        """Do as `Client.models` does, awaited."""
        return await self._send(calls.models(), timeout_s)

    async def verify(
        self,
        question: str,
        answer: str,
        *,
        threshold: float,
        context: str | None = None,
        timeout_s: float | None = None,
    ) -> Verified:
        """Do as `Client.verify` does, awaited."""
        return await self._send(calls.verify(question, answer, threshold, context), timeout_s)

    async def guardrail(
        self,
        input_type: Literal["request", "response"],
        *,
        texts: Sequence[str] | None = None,
        structured_messages: Sequence[Mapping[str, Any]] | None = None,
        litellm_call_id: str | None = None,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> GuardrailVerdict:
        """Do as `Client.guardrail` does, awaited."""
        named = {
            "texts": texts,
            "structured_messages": structured_messages,
            "litellm_call_id": litellm_call_id,
        }
        return await self._send(calls.guardrail(input_type, {**named, **fields}), timeout_s)
