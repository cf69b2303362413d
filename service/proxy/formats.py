"""The port to the APIs of OpenAI: where the turns, the text, the end and the score are."""

from collections.abc import Mapping
from typing import Any, Protocol


class Format(Protocol):
    """One API. Payloads are whole answers and events of streams, as JSON objects in the format of the API.

    `path`: the route, below the server's base URL. `ends_at_once`: no text follows the event of a stream that
    has the finish reason. `always`: members that are added to every call.
    """

    path: str
    ends_at_once: bool
    always: Mapping[str, Any]

    def call(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the body of a chat for the same answer. Raises Unscorable."""

    def asking_logprobs(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return a body that also asks for log-probabilities."""

    def read(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a payload as a chat completion, or a chunk of one."""

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

    def stream(self, payload: Mapping[str, Any], document: Mapping[str, Any]) -> bytes:
        """Return a stream of a whole answer with its score."""
