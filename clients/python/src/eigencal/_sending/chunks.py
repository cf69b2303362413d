"""Pieces of a streamed chat."""

import json

from pydantic import ValidationError

from eigencal._errors import ApiError, ConnectionLost, UnexpectedAnswer
from eigencal._models.chat import ChatChunk
from eigencal._problems import kind_of

BROKEN_OFF = 502  # the status that an error inside a stream would have had


def chunk_of(line: bytes) -> ChatChunk | None:
    """Return the piece that a line of the stream tells; None for signs of life and its end.

    Raises ApiError for an error inside the stream.
    """
    if not line.startswith(b"data:") or is_end(line):
        return None
    said = line.removeprefix(b"data:")
    try:
        chunk = ChatChunk.model_validate_json(said)
    except ValidationError:
        raise UnexpectedAnswer("A piece of the streamed answer is not as OpenAI's API has it.") from None
    if chunk.model_extra and "error" in chunk.model_extra:
        raise _broken_off(json.loads(said)["error"])
    return chunk


def is_end(line: bytes) -> bool:
    """Return whether a line ends the stream: an answer without it was cut."""
    return line.startswith(b"data:") and line.removeprefix(b"data:").strip() == b"[DONE]"


def cut() -> ConnectionLost:
    """Return the error for a stream that ended without its last line."""
    return ConnectionLost("The streamed answer was cut: it ended without `[DONE]`.")


def _broken_off(error: object) -> ApiError:
    told = error if isinstance(error, dict) else {"message": str(error)}
    code = told.get("code")
    code = code if isinstance(code, str) else None
    detail = str(told.get("message") or "The answer broke off.")
    return kind_of(code, BROKEN_OFF)(detail, status=BROKEN_OFF, code=code, problem={"error": told})
