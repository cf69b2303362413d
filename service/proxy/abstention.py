"""Withholding answers by their decision, and the text that replaces them.

If the operator enforces abstaining, only judged text is sent. Otherwise a caller's prompt could have the
answer written into the reasoning, or next to a tool call, before a text that is sure to pass.
"""

from collections.abc import Mapping
from typing import Any

from service.errors import EigencalError, LLMUnavailable
from service.llm.port import Api
from service.llm.sse import Event, events, too_long
from service.llm.wire import error_in
from service.proxy import upstream
from service.proxy.chat_score import RunningScore, Uncertainty, choices_of, first_choice, has_others
from service.proxy.stream import (
    DONE,
    NO_END,
    StreamedAnswer,
    event_of,
    with_uncertainty,
    without_logprobs,
)
from service.proxy.upstream import BROKEN_OFF, Reply

# Members of a response that do not depend on the text of the answer.
_ABOUT = ("id", "object", "created", "model", "system_fingerprint", "service_tier", "usage")
# Members of a message without text that are forwarded.
_KEPT = frozenset({"role", "tool_calls", "function_call", "refusal"})


def is_abstained(uncertainty: Uncertainty) -> bool:
    """Return True if the decision on the answer is to abstain."""
    decision = uncertainty.score.decision if uncertainty.score else None
    return decision is not None and decision.action == "abstain"


def is_judged(uncertainty: Uncertainty) -> bool:
    """Return True if a calibration's model or a refusal decided, or there is no text to be wrong.

    There is no text to be wrong if the answer is a tool call or the model's refusal.
    """
    if uncertainty.warning is not None and uncertainty.warning.code in ("tool_call", "refusal"):
        return True
    score = uncertainty.score
    if score is None or score.decision is None:
        return False
    return score.unavailable_reason is None or score.is_refused


def abstaining(payload: Mapping[str, Any], text: str, api: Api) -> dict[str, Any]:
    """Return the answer with `text` in each choice. Choices after the first were not judged."""
    number = len(choices_of(payload)) or 1
    content = {"message": {"role": "assistant", "content": text}} if api == "chat" else {"text": text}
    stand_in = {**content, "logprobs": None, "finish_reason": "stop"}
    return _about(payload) | {"choices": [{"index": index, **stand_in} for index in range(number)]}


def let_through(payload: dict[str, Any], judged: str | None) -> dict[str, Any]:
    """Return the answer with `judged` as its only text, without log-probabilities.

    `judged` None: the answer is a tool call or a refusal.
    """
    choice = first_choice(payload) or {}
    message = choice.get("message")
    if isinstance(message, dict):
        names = _KEPT if judged is None else {"role"}
        kept = {name: value for name, value in message.items() if name in names}
        content: dict[str, Any] = {"message": {**kept, "content": judged}}
    else:
        content = {"text": judged or ""}
    judged_choice = {"index": 0, **content, "logprobs": None, "finish_reason": choice.get("finish_reason")}
    return _about(payload) | {"choices": [judged_choice]}


class HeldStream:
    """A stream that is read to its end before any of it is sent."""

    def __init__(self) -> None:
        self.answer = StreamedAnswer()
        self.has_others = False
        self._about: dict[str, Any] = {}
        self._usage: Any = None
        self._read: list[bytes] = []  # raw events; parsed, they take ten times the memory
        self._carrier: int | None = None  # index of the last event with a finish reason of the first choice

    @property
    def finish_reason(self) -> str:
        """Return the finish reason of the first choice; "stop" if it has none."""
        return (self.answer.choice and self.answer.choice.finish_reason) or "stop"

    async def read(self, reply: Reply, running: RunningScore) -> bool:
        """Read the stream and start to judge its answer; return False if it has no complete answer.

        Raises the error that ended the stream early.
        """
        num_bytes, is_over = 0, False
        try:
            async for event in events(reply.pieces(), upstream.MAX_WHOLE_BYTES):
                num_bytes += len(event.raw)
                if num_bytes > upstream.MAX_WHOLE_BYTES:
                    raise too_long()
                if not event.data:
                    continue  # a comment: a heartbeat, which a held stream does not forward
                chunk = event.chunk()
                self._read.append(event.raw)
                is_over = is_over or event.is_last
                if chunk is not None:
                    self._take(chunk)
                    if self.answer.has_text:
                        running.start()
        except EigencalError as error:
            await running.discard(error)
            raise
        if self._carrier is not None or (is_over and not self.answer.is_broken):
            running.judge(self.answer.choice, self.answer.model)
            return True
        await running.discard(NO_END)
        return False

    def replaced(self, uncertainty: Uncertainty, text: str, api: Api, finish_reason: str = "stop") -> bytes:
        """Return a stream with the text `text` to replace this one."""
        common = {name: value for name, value in self._about.items() if name != "usage"}
        begun: dict[str, Any] = {"delta": {"role": "assistant", "content": text}}
        ended: dict[str, Any] = {"delta": {}}
        if api == "completions":
            begun, ended = {"text": text}, {"text": ""}
        first = {**common, "choices": [{"index": 0, **begun, "logprobs": None, "finish_reason": None}]}
        last = {
            **common,
            "choices": [{"index": 0, **ended, "logprobs": None, "finish_reason": finish_reason}],
        }
        sent = [first, with_uncertainty(last, uncertainty.document())]
        sent += [{**common, "choices": [], "usage": self._usage}] if self._usage else []
        return b"".join([*map(event_of, sent), DONE])

    def released(self, uncertainty: Uncertainty, *, only_judged: bool, hides_logprobs: bool) -> bytes:
        """Return this stream with its score. `only_judged`: keep only its tool calls and refusals."""
        sent = []
        for index, event in enumerate(map(Event, self._read)):
            chunk = event.chunk()
            if chunk is None:  # an event that is not a chunk may contain any text
                sent.append(event.raw if not only_judged else DONE if event.is_last else b"")
                continue
            kept = _textless(chunk) if only_judged else without_logprobs(chunk) if hides_logprobs else chunk
            if index == self._carrier:
                kept = with_uncertainty(kept, uncertainty.document())
            sent.append(event.raw if kept is chunk else event_of(kept))
        return b"".join(sent)

    def _take(self, chunk: dict[str, Any]) -> None:
        if error_in(chunk):
            # The server's message may contain the answer, so it is replaced. The caller may retry.
            raise LLMUnavailable(BROKEN_OFF)
        self.has_others = self.has_others or has_others(chunk)
        self._about = self._about or _about(chunk)
        self._usage = chunk.get("usage") or self._usage
        if self.answer.take(chunk):
            self._carrier = len(self._read) - 1


def _about(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {name: payload[name] for name in _ABOUT if name in payload}


def _textless(chunk: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chunk with only the members of its deltas that are forwarded without text."""
    kept = []
    for choice in choices_of(chunk):
        if isinstance(choice, dict):
            delta = choice.get("delta")
            ends = {name: choice[name] for name in ("index", "finish_reason") if name in choice}
            if isinstance(delta, dict):
                kept.append({**ends, "delta": {name: delta[name] for name in delta if name in _KEPT}})
            else:
                kept.append({**ends, "text": ""})
    return _about(chunk) | {"choices": kept}
