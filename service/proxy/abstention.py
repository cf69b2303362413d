"""Withholding answers by their decision, and the text that replaces them.

If the operator enforces abstaining, only judged text is sent. Otherwise a caller's prompt could have the
answer written into the reasoning, or next to a tool call, before a text that is sure to pass.
"""

from typing import Any

from service.errors import EigencalError, LLMUnavailable
from service.llm.sse import Event, events, too_long
from service.llm.wire import error_in
from service.proxy import upstream
from service.proxy.chat_score import RunningScore, Uncertainty, has_others
from service.proxy.formats import Format
from service.proxy.stream import DONE, NO_END, StreamedAnswer
from service.proxy.upstream import BROKEN_OFF, Reply


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


class HeldStream:
    """A stream that is read to its end before any of it is sent.

    `payload`: the whole answer, possibly without its text.
    """

    def __init__(self, api: Format) -> None:
        self.answer = StreamedAnswer()
        self.has_others = False
        self.payload: dict[str, Any] = {}
        self._api = api
        self._read: list[bytes] = []  # raw events; parsed, they take ten times the memory
        self._carrier: int | None = None  # index of the last event with a finish reason of the first choice

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
                    if self._carrier is not None and self._api.ends_at_once:
                        break
        except EigencalError as error:
            await running.discard(error)
            raise
        if self._carrier is not None or (is_over and not self.answer.is_broken):
            running.judge(self.answer.choice, self.answer.model, self.answer.id)
            return True
        await running.discard(NO_END)
        return False

    def released(self, uncertainty: Uncertainty, *, only_judged: bool, hides_logprobs: bool) -> bytes:
        """Return this stream with its score. `only_judged`: keep only its tool calls and refusals."""
        sent = []
        for index, event in enumerate(map(Event, self._read)):
            chunk = event.chunk()
            if chunk is None:  # an event that is not a chunk may contain any text
                sent.append(event.raw if not only_judged else DONE if event.is_last else b"")
                continue
            api, kept = self._api, chunk
            if only_judged:
                if (textless := api.textless(chunk)) is None:
                    continue
                kept = textless
            elif hides_logprobs:
                kept = api.without_logprobs(chunk)
            if index == self._carrier:
                kept = api.with_uncertainty(kept, uncertainty.document())
            sent.append(event.raw if kept is chunk else api.event(kept))
        return b"".join(sent)

    def _take(self, event: dict[str, Any]) -> None:
        chunk = self._api.read(event)
        if error_in(chunk):
            # The server's message may contain the answer, so it is replaced. The caller may retry.
            raise LLMUnavailable(BROKEN_OFF)
        self.has_others = self.has_others or has_others(chunk)
        self.payload = self._api.gathered(self.payload, event)
        if self.answer.take(chunk):
            self._carrier = len(self._read) - 1
