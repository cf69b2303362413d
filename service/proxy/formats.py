"""The port to the APIs of OpenAI: where the turns, the text, the end and the score are."""

from collections.abc import Mapping
from typing import Any, Protocol

from service.llm.port import Api


class Format(Protocol):
    """One API. Payloads are whole answers and events of streams, as JSON objects in the format of the API.

    `path`: the route, below the server's base URL. `samples_api`: the API of its samples. `ends_at_once`: no
    text follows the event of a stream that has the finish reason.
    """

    path: str
    samples_api: Api
    ends_at_once: bool

    def call(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the body of a call of `samples_api` for the same answer. Raises Unscorable."""

    def asking_logprobs(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return a body that also asks for log-probabilities."""

    def read(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a payload as a completion, or a chunk, of `samples_api`."""

    def without_logprobs(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return a payload without log-probabilities; it may be the same object if it has none."""

    def with_uncertainty(self, event: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the last event of an answer with its score."""

    def event(self, payload: Mapping[str, Any]) -> bytes:
        """Return a server-sent event with this payload."""

    def abstaining(self, payload: Mapping[str, Any], text: str) -> dict[str, Any]:
        """Return a whole answer that has `text` in place of each of its texts."""

    def let_through(self, payload: Mapping[str, Any], judged: str | None) -> dict[str, Any]:
        """Return a whole answer with `judged` as its only text, without log-probabilities.

        `judged` None: keep only tool calls and refusals.
        """

    def textless(self, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return an event with only tool calls and refusals; None: the event is left out."""

    def gathered(self, whole: dict[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole answer of a stream, possibly without its text, after one more event."""

    def stream(self, payload: Mapping[str, Any], document: Mapping[str, Any]) -> bytes:
        """Return a stream of a whole answer, from `abstaining` or `let_through`, with its score."""
