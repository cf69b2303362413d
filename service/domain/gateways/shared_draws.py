"""Answers drawn for a call that another replica may be asked about: as documents that all replicas find."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from service.domain.models import Draw, Generation, GenerationRequest, Message, Usage
from service.domain.serving import Serving

KIND = "guardrail"
REFUSED = "guardrail-refused"  # apart, so that no draw that ends later hides it
KEEP_S = 600.0  # between the two calls of one chat lies one answer of the LLM


@dataclass(frozen=True, slots=True)
class Key:
    """The id that a gateway has for a call, and the mark of the key that it calls with."""

    call_id: str
    owner: str

    @property
    def id(self) -> str:
        """Return the id under which documents are kept: a hash, since what gateways send may be anything."""
        return hashlib.sha256(self.call_id.encode("utf-8", "replace")).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Maker:
    """Who draws: a replica, and which of the processes that have had its name."""

    replica: str
    process: str


State = Literal["pending", "left", "drawn", "failed"]


def document_of(
    state: State,
    request: GenerationRequest | None = None,
    *,
    maker: Maker | None = None,
    generation: Generation | None = None,
    reason: str = "",
) -> dict[str, Any]:
    """Return what other replicas are told of a call.

    "pending": `maker` draws. "left": it was stopped before it had drawn. "failed": it could not be drawn,
    for that `reason`.
    """
    asked = None if request is None else _asked(request)
    return {
        "state": state,
        "asked": asked,
        "maker": None if maker is None else asdict(maker),
        "generation": None if generation is None else asdict(generation),
        "reason": reason,
    }


def _asked(request: GenerationRequest) -> dict[str, Any]:
    return {"messages": [asdict(turn) for turn in request.messages or ()], "num_samples": request.num_samples}


def maker_in(document: Mapping[str, Any]) -> Maker:
    """Return who draws, or drew."""
    return Maker(**document["maker"])


def request_in(document: Mapping[str, Any], serving: Serving) -> GenerationRequest:
    """Return what is to be drawn; the sampling is that of the settings, which replicas share."""
    asked = document["asked"]
    turns = tuple(Message(**turn) for turn in asked["messages"])
    return serving.request(messages=turns, num_samples=asked["num_samples"])


def generation_in(document: Mapping[str, Any]) -> Generation:
    """Return the answers that were drawn."""
    kept = dict(document["generation"])
    draws = tuple(Draw(**draw) for draw in kept.pop("draws"))
    usage, omitted = Usage(**kept.pop("usage")), tuple(kept.pop("omitted"))
    return Generation(draws, usage=usage, omitted=omitted, **kept)
