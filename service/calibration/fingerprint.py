"""What a calibration is bound to: who drew the answers, how, and what embeds them."""

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from service.embedding.port import FAILED, EmbedderIdentity, EmptyAnswers
from service.llm.port import LLMIdentity, Sampling

CALLER = "caller"
SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a calibration is bound to. Two set-ups with equal fingerprints share calibrations.

    For answers supplied by a caller the LLM parts are unknown and empty; `source_label` stands for them.
    The number of answers is no part: a calibration holds parameters for each number up to its own.
    `evidence`: whose log-probabilities a calibration by evidence was fitted with: "token_sums" (of the LLM
    server) or "supplied" (by the caller); "" where it uses none.
    """

    source: str
    embedder: str
    embedder_revision: str
    embedder_precision: str
    embedder_dimension: int
    source_label: str = ""
    model: str = ""
    api: str = ""
    prompt_shape: str = ""
    answer_regex: str = ""
    empty_answers: EmptyAnswers = FAILED
    sampling: dict[str, Any] = field(default_factory=dict)
    evidence: Literal["", "token_sums", "supplied"] = ""

    def parts(self) -> dict[str, Any]:
        """Return the parts by name, sampling parameters flattened to `sampling.temperature` etc."""
        flat = asdict(self)
        sampling = flat.pop("sampling")
        # No part: else a server that tells log-probabilities no more would lose its plain parameters, too.
        del flat["evidence"]
        return flat | {f"sampling.{k}": v for k, v in sorted(sampling.items())}

    def described(self) -> dict[str, Any]:
        """Return the parts, and `evidence` where it was used, for people."""
        return self.parts() | ({"evidence": self.evidence} if self.evidence else {})

    def differs(self, other: "Fingerprint") -> list[str]:
        """Return the sorted names of the parts in which the two differ; empty when they fit."""
        mine, theirs = self.parts(), other.parts()
        return sorted(k for k in mine.keys() | theirs.keys() if mine.get(k) != theirs.get(k))

    def drawn_as(self, other: "Fingerprint") -> "Fingerprint":
        """Return this set-up with what only answers tell taken from the other: model, parameters not sent."""
        pairs = ((name, value, other.sampling.get(name)) for name, value in self.sampling.items())
        unsent = {name: theirs for name, mine, theirs in pairs if mine is None or theirs is None}
        return replace(self, model=other.model, sampling=self.sampling | unsent)

    def key(self) -> str:
        """Return a stable hash (32 hex digits): the database keeps one active calibration per key."""
        return hashlib.sha256(json.dumps(self.parts(), sort_keys=True).encode()).hexdigest()[:32]


def _embedder_parts(embedder: EmbedderIdentity) -> dict[str, Any]:
    return {
        "embedder": embedder.name,
        "embedder_revision": embedder.revision,
        "embedder_precision": embedder.precision,
        "embedder_dimension": embedder.dimension,
        "empty_answers": embedder.empty_answers,
    }


def with_embedder(fingerprint: Fingerprint, embedder: EmbedderIdentity) -> Fingerprint:
    """Return the fingerprint of the same answers under this embedder."""
    return replace(fingerprint, **_embedder_parts(embedder))


def service_fingerprint(llm: LLMIdentity, sampling: Sampling, embedder: EmbedderIdentity) -> Fingerprint:
    """Return the fingerprint of answers drawn by this service; the seed is no part of it."""
    parameters = asdict(sampling)
    del parameters["seed"]
    parameters["stop"] = list(sampling.stop)
    parameters |= dict.fromkeys(llm.omitted)  # None: the server's own value
    return Fingerprint(SERVICE, sampling=parameters, **llm.parts(), **_embedder_parts(embedder))


def caller_fingerprint(source_label: str, embedder: EmbedderIdentity) -> Fingerprint:
    """Return the fingerprint of answers supplied by a caller under a label."""
    return Fingerprint(CALLER, source_label=source_label, **_embedder_parts(embedder))
