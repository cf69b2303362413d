"""`uncertainty`, as it goes with an answer and as it is kept."""

from collections.abc import Mapping
from typing import Any

from service.api.routes.score_view import headers_of, view
from service.domain.chat.uncertainty import Uncertainty

ID_HEADER = "X-Score-ID"
# The chat's own answer is the one that is judged: the score's would only be taken for it.
NOT_REPEATED = ("id", "answer")


def document_of(found: Uncertainty) -> dict[str, Any]:
    """Return an answer's uncertainty as JSON. No field of it is named `error`: clients would raise."""
    document: dict[str, Any] = {"id": found.id, "status": found.status}
    if found.score is not None:
        told = view(found.score, ()).model_dump(mode="json", exclude_unset=True)
        # Of the chat's own answer, as everything here: a /score has this of the answer drawn.
        told["probability_correct"] = found.score.judgement.decisive
        document |= {name: value for name, value in told.items() if name not in NOT_REPEATED}
    if found.warning is not None:
        document["warning"] = {"code": found.warning.code, "message": found.warning.message}
    if found.withheld is not None:
        document["withheld"] = found.withheld
    return document


def score_headers(found: Uncertainty) -> dict[str, str]:
    """Return the headers of an answer that has its score, or of one that may be asked for it later."""
    values: Mapping[str, str] = {} if found.score is None else headers_of(found.score)
    return {ID_HEADER: found.id, **values}
