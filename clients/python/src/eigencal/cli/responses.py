"""Streamed answers of `POST /v1/responses`, for the command `eigencal chat --responses`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from pydantic import ValidationError

from eigencal import APIConnectionError, ChatOptions, Client, KeptScore, UnexpectedResponseError
from eigencal._base_client import Call, without_none
from eigencal._exceptions import error_of_problem
from eigencal._result import Result
from eigencal.resources.chat import BROKEN_OFF

_ENDS = ("response.completed", "response.incomplete")


class _Response(Result):
    uncertainty: KeptScore | None = None
    error: dict[str, Any] | None = None


class _Event(Result):
    """An event of a stream. An error is in `error` (the service's), in `response`, or the event itself."""

    type: str | None = None
    delta: Any = None
    response: _Response = _Response()
    error: dict[str, Any] | None = None


def stream_response(
    client: Client, turns: Sequence[Mapping[str, Any]], options: ChatOptions | None, model: str
) -> Iterator[tuple[str, KeptScore | None]]:
    """Yield the text of an answer in pieces; the score comes with the last piece.

    Raises:
        APIStatusError: The call was refused, or the LLM server ended the answer with an error.
        APIConnectionError: The answer was cut.
    """
    fields = {"input": list(turns), "model": model, "stream": True, "eigencal": options}
    # The LLM server may have begun this call, so it is not repeated.
    call = Call("POST", "/v1/responses", _Event, without_none(fields), is_idempotent=False)
    is_complete = False
    with closing(client._lines(call, client._limit_s(None))) as lines:
        for data in (line[5:].strip() for line in lines if line.startswith(b"data:")):
            if data == b"[DONE]":
                break
            try:
                event = _Event.model_validate_json(data)
            except ValidationError:
                raise UnexpectedResponseError("An event is not as OpenAI's API has it.") from None
            if event.error or event.type in ("response.failed", "error"):
                error = event.error or event.response.error or event.model_extra
                raise error_of_problem(BROKEN_OFF, {"error": error})
            is_complete = is_complete or event.type in _ENDS
            is_text = event.type == "response.output_text.delta"
            yield str(event.delta) if is_text else "", event.response.uncertainty
    if not is_complete:
        raise APIConnectionError("The streamed answer was cut: it ended without `response.completed`.")
