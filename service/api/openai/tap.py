"""What of a stream goes by at once, and what waits for the score: the chunk that finishes the answer."""

from typing import Any

from service.api.openai.hidden_logprobs import without_logprobs
from service.api.openai.sse import Event, Events, event_of
from service.api.openai.view import document_of
from service.domain.chat.own_answer import OwnAnswer
from service.domain.chat.uncertainty import Uncertainty


class Tap:
    """Reads a stream that goes by, and holds back the chunk that finishes the first choice.

    What comes after that chunk waits behind it, but for chunks of other choices. `is_over`: the server has
    said so. `has_failed`: it has told an error. `hides_logprobs`: the caller did not ask for them.
    """

    def __init__(self, *, hides_logprobs: bool = False) -> None:
        self.own = OwnAnswer()
        self._hides_logprobs = hides_logprobs
        self.is_over = self.has_failed = False
        self._events = Events()
        self._held: dict[str, Any] | None = None
        self._after: list[bytes] = []
        self._passes_all = False

    @property
    def holds(self) -> bool:
        """Tell whether a chunk is held back."""
        return self._held is not None

    def feed(self, piece: bytes) -> bytes:
        """Take a piece; return what goes on to the caller now."""
        return b"".join(self._going_on(event) for event in self._events.feed(piece))

    def release(self, found: Uncertainty) -> bytes:
        """Return the chunk held back, with the score on it, and what waits behind it."""
        self.pass_all()
        if self._held is None:
            return b""
        shown = without_logprobs(self._held) if self._hides_logprobs else self._held
        held, self._held = with_uncertainty(shown, document_of(found)), None
        behind, self._after = b"".join(self._after), []
        return event_of(held) + behind

    def pass_all(self) -> None:
        """Read no more: what still comes goes on as it is."""
        self._passes_all = True

    def rest(self) -> bytes:
        """Return what came last and is no whole event."""
        return self._events.rest()

    def _shown(self, event: Event) -> bytes:
        chunk = event.chunk() if self._hides_logprobs else None
        return event.raw if chunk is None else event_of(without_logprobs(chunk))

    def _going_on(self, event: Event) -> bytes:
        """Return what of an event goes on to the caller at once."""
        if self._passes_all:
            return self._shown(event)
        self.is_over = self.is_over or event.is_last
        chunk = event.chunk()
        if self.holds:
            return self._shown(event) if self._waits_for_none(event, chunk) else b""
        if chunk is None:
            return self._shown(event)
        self.has_failed = self.has_failed or bool(chunk.get("error"))
        if not self.own.take(chunk):
            return self._shown(event)
        now, self._held = divided(chunk)
        if now is None:
            return b""
        return event_of(without_logprobs(now) if self._hides_logprobs else now)

    def _waits_for_none(self, event: Event, chunk: dict[str, Any] | None) -> bool:
        choices = (chunk or {}).get("choices")
        if isinstance(choices, list) and choices and all(_is_other(choice) for choice in choices):
            return True
        self._after.append(event.raw)
        return False


def divided(chunk: dict[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return what of a finishing chunk goes on at once, or None, and what waits for the score.

    Some servers send the last words, or all of them, with the reason why they end: words wait for no score.
    """
    mine = [choice for choice in chunk["choices"] if _is_first(choice)]
    if not any(_says_more(choice) for choice in mine):
        return None, chunk
    begun = [_begun(choice) if _is_first(choice) else choice for choice in chunk["choices"]]
    now = {name: value for name, value in chunk.items() if name != "usage"}  # clients take the last one told
    return {**now, "choices": begun}, {**chunk, "choices": [_ended(choice) for choice in mine]}


_OF_THE_END = ("finish_reason", "stop_reason")


def _says_more(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    said = delta if isinstance(delta, dict) else {"text": choice.get("text")}
    return any(value for name, value in said.items() if name != "role")


def _begun(choice: dict[str, Any]) -> dict[str, Any]:
    return choice | {name: None for name in _OF_THE_END if name in choice}


def _ended(choice: dict[str, Any]) -> dict[str, Any]:
    """Return the choice without what went before: clients that put lists together would have it twice."""
    kept = {name: choice[name] for name in ("index", *_OF_THE_END) if name in choice}
    empty: dict[str, Any] = {"delta": {}} if isinstance(choice.get("delta"), dict) else {"text": ""}
    return {**kept, **empty, **({"logprobs": None} if "logprobs" in choice else {})}


def with_uncertainty(chunk: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return a chunk with the score at its top, and in the first choice's delta.

    Clients differ in which of the two they let through, and in whether they sum what comes twice.
    """
    choices = [
        {**choice, "delta": {**choice["delta"], "uncertainty": document}} if _has_delta(choice) else choice
        for choice in chunk["choices"]
    ]
    return {**chunk, "choices": choices, "uncertainty": document}


def _has_delta(choice: object) -> bool:
    return isinstance(choice, dict) and _is_first(choice) and isinstance(choice.get("delta"), dict)


def _is_first(choice: object) -> bool:
    return isinstance(choice, dict) and not choice.get("index")


def _is_other(choice: object) -> bool:
    return isinstance(choice, dict) and bool(choice.get("index"))
