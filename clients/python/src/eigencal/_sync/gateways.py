"""The drop-in and what gateways ask."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from eigencal._calls import gateways as calls
from eigencal._models.chat import ChatChunk, ChatCompletion, Model, TextCompletion
from eigencal._models.gateways import GuardrailVerdict, Verified
from eigencal._models.requests import ChatOptions
from eigencal._sending.chunks import chunk_of, cut, is_end
from eigencal._sync.sending import Sender, lines_of


class Gateways(Sender):
    """Calls of the drop-in and of gateways."""

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        eigencal: ChatOptions | None = None,
        mode: Literal["on", "async", "off"] | None = None,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> ChatCompletion:
        """Ask the LLM through the drop-in: its answer, and how uncertain it is.

        Args:
            messages: The turns, as for OpenAI's API.
            eigencal: How to score the answer.
            mode: `on`: wait for the score; `async`: it comes by its id; `off`: no score. None: as set there.
            timeout_s: Seconds that the call may take in all; None: those of the client.
            **fields: Everything else goes to the LLM server as it is: `model`, `temperature`, `tools` ...

        Returns:
            The answer, with `content` and `uncertainty`.

        Raises:
            ApiError: The LLM server or the service refused the call.
        """
        return self._send(calls.chat(messages, eigencal, mode, fields), timeout_s)

    def stream_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        eigencal: ChatOptions | None = None,
        mode: Literal["on", "async", "off"] | None = None,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> Iterator[ChatChunk]:
        """Ask the LLM through the drop-in and yield its answer as it comes.

        A stream is begun once: one that breaks off is not asked for again.
        `uncertainty` is on the piece that finishes the answer. Arguments as for `chat`, but that `timeout_s`
        bounds the silence between pieces.

        Raises:
            ApiError: The call was refused, or the LLM server broke off the answer.
            ConnectionLost: The answer was cut; the pieces that came are whole.
        """
        call = calls.chat(messages, eigencal, mode, {**fields, "stream": True})
        silence_s, ended = self._setup.limit_s(timeout_s), False
        with self._stream(call, silence_s) as response:
            for line in lines_of(response, silence_s):
                ended = ended or is_end(line)
                if (chunk := chunk_of(line)) is not None:
                    yield chunk
        if not ended:
            raise cut()

    def complete(
        self,
        prompt: str,
        *,
        eigencal: ChatOptions | None = None,
        mode: Literal["on", "async", "off"] | None = None,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> TextCompletion:
        """Complete a text through the drop-in; arguments and errors as for `chat`."""
        return self._send(calls.complete(prompt, eigencal, mode, fields), timeout_s)

    def models(self, *, timeout_s: float | None = None) -> tuple[Model, ...]:
        """Return the models of the LLM server."""
        return self._send(calls.models(), timeout_s)

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
            question: The question.
            answer: The answer to judge.
            threshold: Least probability of being right, 0..1, that is not to be escalated.
            context: What the question is asked about: a system message before it.
            timeout_s: Seconds that the call may take in all; None: those of the client.

        Returns:
            `confidence`, the probability that the answer is right, 0..1, and whether it is below `threshold`.

        Raises:
            NoProbability: No calibration that fits tells a probability.
        """
        return self._send(calls.verify(question, answer, threshold, context), timeout_s)

    def guardrail(
        self,
        input_type: Literal["request", "response"],
        *,
        texts: Sequence[str] | None = None,
        structured_messages: Sequence[Mapping[str, Any]] | None = None,
        litellm_call_id: str | None = None,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> GuardrailVerdict:
        """Ask what LiteLLM's proxy asks its guardrail (Generic Guardrail API).

        Args:
            input_type: Which of the two calls: before the chat goes to the LLM, or with its answer.
            texts: The texts; of an answer, the first is judged.
            structured_messages: The chat's messages (`request`).
            litellm_call_id: The same in both calls of one chat.
            timeout_s: Seconds that the call may take in all; None: those of the client.
            **fields: Every other field of the protocol, such as `additional_provider_specific_params`.

        Returns:
            `NONE` to go on or `BLOCKED`, and why.
        """
        named = {
            "texts": texts,
            "structured_messages": structured_messages,
            "litellm_call_id": litellm_call_id,
        }
        return self._send(calls.guardrail(input_type, {**named, **fields}), timeout_s)
