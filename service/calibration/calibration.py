"""A calibration: what it is bound to; its maps, correctness models and thresholds by number of answers.

And whether a new one is activated: by held-out rows, against what is active now, or raw scores.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, Field

from service.embedding.port import FAILED, PAPER, EmbedderIdentity, EmptyAnswers, Kernel
from service.llm.port import LLMIdentity, Sampling
from service.spectral.conformal import ConformalReference
from service.spectral.correctness_model import (
    AGREEMENT,
    FEATURES_OF_TOKENS,
    CorrectnessModel,
    agreement,
    logit_probability,
)
from service.spectral.evidence import EvidenceMap
from service.spectral.resampling import Difference
from service.spectral.selective import SelectiveCounts
from service.spectral.spectrum import DepolarizedMap, TemperatureMap

Unit = Literal["answer", "claim"]
CALLER = "caller"
SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a calibration is bound to. Two set-ups with equal fingerprints share calibrations.

    For answers supplied by a caller the LLM parts are unknown and empty; `source_label` stands for them.
    The number of answers is no part: a calibration holds parameters for each number up to its own.
    `evidence`: whose log-probabilities a calibration by evidence was fitted with: "token_sums" (of the LLM
    server) or "supplied" (by the caller); "" where it uses none. `unit`: what is scored, whole answers or
    single claims of them. `kernel`: what answers are compared by. `comparer`: the LLM that compares them and
    the version of its prompt; "" where none does.
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
    unit: Unit = "answer"
    kernel: Kernel = PAPER
    comparer: str = ""

    def parts(self) -> dict[str, Any]:
        """Return the parts by name, sampling parameters flattened to `sampling.temperature` etc."""
        flat = asdict(self)
        sampling = flat.pop("sampling")
        # No part: else a server that tells log-probabilities no more would lose its plain parameters, too.
        del flat["evidence"]
        if self.unit == "answer":
            del flat["unit"]
        if self.kernel == PAPER:
            del flat["kernel"]  # as in calibrations made before there was another
        if not self.comparer:
            del flat["comparer"]
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
        return replace(self, model=other.model, comparer=other.comparer, sampling=self.sampling | unsent)

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
        "kernel": embedder.kernel,
        "comparer": embedder.comparer,
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


# Whose texts verdicts are on: the rows' own `answer`, the dominant answer drawn, the first one drawn (where a
# score draws none), or by row.
JudgedTexts = Literal["given", "dominant", "first", "mixed"]
# What a promise is about (method, section 11); it stands wherever one is shown.
PROMISE_MEANING = (
    "Of calibrations made like this one, at least the share named as confidence keeps at once all errors "
    "that it promises with one number of answers, on questions like those of its rows. So a target may be "
    "chosen after looking at what is reachable; where the number of answers is, too, fewer keep them."
)


@dataclass(frozen=True, slots=True)
class Selector:
    """P(correct), and what thresholds on it let through. Numbers only.

    `map` was fitted on all rows, and on what it says of them `model`. `counts` are of all rows, too, each
    predicted by a map and a model fitted without its fold: so what they promise holds for new questions like
    them, and texts like those judged. Of those, texts that no answer drawn supports (`born.supported`) are
    never let through, here as in a score. Where no answer is drawn, `map` is that of one answer, which the
    judged text stands for; None for claims, whose model takes log-probabilities of tokens. `all_correct`: of
    claims, the probability that all of an answer are right, by `answer_columns`; `with_tokens`: what tells
    more where the log-probabilities of a claim's tokens are known, too.
    """

    map: DepolarizedMap | TemperatureMap | EvidenceMap | None
    model: CorrectnessModel
    counts: SelectiveCounts
    judged: JudgedTexts
    all_correct: CorrectnessModel | None = None
    with_tokens: "Selector | None" = None

    def map_for(self, missing_mass: float | None) -> DepolarizedMap | TemperatureMap | None:
        """Return the map that makes the features of one prompt.

        missing_mass: u of its answers or, where none is drawn, of the judged text; None: no
        log-probabilities, and no map where it takes them. None, too, for claims to which no answer is drawn.
        """
        if isinstance(self.map, EvidenceMap):
            return None if missing_mass is None else self.map.at(missing_mass)
        return self.map


def answer_features(lambda_max: ArrayLike, probability: ArrayLike) -> dict[str, ArrayLike]:
    """Return the column of a model of answers, (n,) or one number: see `agreement`.

    lambda_max: of the spectrum that `Selector.map` serves; probability: p(y) of the judged text under it.
    """
    return {AGREEMENT: agreement(lambda_max, probability)}


def claim_features(probability: ArrayLike, entropy: ArrayLike) -> dict[str, ArrayLike]:
    """Return the columns of a model of claims, (n,) each: of p(y) in [0, 1] and entropies in nats."""
    return {"logit_probability": logit_probability(probability), "entropy": entropy}


def token_features(
    fact_logprob: NDArray[np.float64], least_logprob: NDArray[np.float64], logprob: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """Return the columns of a model of claims that takes no answers drawn, of log-probabilities (n,)."""
    return dict(zip(FEATURES_OF_TOKENS, (fact_logprob, least_logprob, logprob), strict=True))


def answer_columns(probabilities: ArrayLike, groups: ArrayLike) -> dict[str, ArrayLike]:
    """Return the columns (G,) of a model of answers from P(correct) (n,) of the claims of each.

    groups: (n,), 0 .. G - 1, the answer of each claim.
    """
    logits, of_claim = logit_probability(probabilities), np.asarray(groups)
    number = np.bincount(of_claim)
    least = np.full(number.size, np.inf)
    np.minimum.at(least, of_claim, logits)
    mean = np.bincount(of_claim, weights=logits) / number
    return {"least_logit": least, "mean_logit": mean, "log_number": np.log(number)}


Method = Literal["depolarized", "temperature", "evidence"]
# What a caller may ask for: a map or the best of several, and when to serve it.
MethodOption = Literal["depolarized", "temperature", "evidence", "both", "auto"]
ActivateOption = Literal["if_better", "always", "never"]


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted calibration; never changed once stored.

    `parameters` holds an entry for every number of answers from 2 to `num_samples`, the number drawn when
    fitting; the entry of `num_samples` is the headline. Those of "temperature" have T alone (g = 0). `eps`
    is the null eigenvalue that its map was fitted with (it does not act when serving, but T means nothing
    without it).

    `evidence`, for the method "evidence" alone, holds a map for every number of answers from 1 to
    `num_samples`; `parameters` are then those of `depolarized`, for answers without log-probabilities.

    `selectors`: by number of answers, 0 included, where the rows' verdicts allow a model of being right.
    `recommended`: how many answers its report recommends to draw, None for none.

    `reference`: what the rows' prompts are like; None in lists, which leave it in the store.
    """

    id: str
    method: Method
    fingerprint: Fingerprint
    num_samples: int
    parameters: Mapping[int, DepolarizedMap]
    created_at: datetime
    eps: float = 1e-10
    name: str = ""
    evidence: Mapping[int, EvidenceMap] = field(default_factory=dict)
    selectors: Mapping[int, Selector] = field(default_factory=dict)
    recommended: int | None = None
    reference: ConformalReference | None = field(default=None, compare=False, repr=False)

    def headline(self) -> DepolarizedMap:
        """Return the parameters of the full number of answers."""
        return self.parameters[self.num_samples]

    def evidence_table(self) -> list[dict[str, Any]]:
        """Return the evidence map of every number of answers, as it is told; nothing for other methods."""
        return [
            {
                "num_samples": m,
                "temperature": one.temperature,
                "evidence_intercept": one.intercept,
                "evidence_slope": one.slope,
            }
            for m, one in sorted(self.evidence.items())
        ]

    def map_for(self, num_samples: int, missing_mass: float | None = None) -> DepolarizedMap | TemperatureMap:
        """Return the map for this many answers; KeyError for more than were drawn for the fit.

        missing_mass: u of the answers, in [0, 1]; None where there are no log-probabilities: then a single
        answer is a KeyError, too.
        """
        if self.evidence and missing_mass is not None:
            return self.evidence[num_samples].at(missing_mass)
        chosen = self.parameters[num_samples]
        return TemperatureMap(chosen.temperature, self.eps) if self.method == "temperature" else chosen


@dataclass(frozen=True, slots=True)
class CalibrationRecord:
    """A stored calibration and what changes around it: whether it is active, whether its data are kept.

    `projection_ece`: of its map on held-out rows, as its report has it.
    """

    calibration: Calibration
    active: bool
    activated_at: datetime | None
    job_id: str | None
    num_rows: int
    data_kept: bool
    projection_ece: float | None = None


class Activation(BaseModel):
    """That a calibration came into force."""

    calibration_id: str = Field(description="Id of the calibration.")
    activated_at: datetime = Field(description="When it came into force.")
    by: str = Field(
        description="Who activated it: the job's id; `key_…` and its name; `settings key`; `no key` where "
        "none was needed; empty for those of before 0.3.0."
    )
    reason: str = Field(description="Why; empty for those of before 0.3.0.")
    replaced: str | None = Field(description="The calibration that was in force until then.")
    fingerprint_key: str = Field(description="The set-up: one calibration is in force for each.")


RISK, LOSS, BRIER = "matrix risk", "log loss of P(correct)", "projection Brier"
MAX_REFUSED_SHARE = 0.02

_FEWER = "it serves fewer answers than the active calibration, so it would serve no request for more"

_SILENT = (
    "the active calibration tells P(correct), and this one has no model of it for any number of answers: "
    "they would lose that figure, and their decisions"
)

_BLIND = "the active calibration uses log-probabilities, and not all of these rows have them to judge it by"


@dataclass(frozen=True, slots=True)
class Gains:
    """What a calibration costs on held-out rows, minus what its rival costs on the same; below 0: better.

    against: id of the active calibration; None where there is none: then raw scores. risk: matrix log risk;
    brier: of the projection; loss: log loss of P(correct). In nats, but for brier. informative: True if
    the projection Brier is below that of one confidence for all prompts, or P(correct) beats the base rate
    beyond chance.
    """

    against: str | None
    risk: Difference
    brier: Difference
    loss: Difference
    informative: bool = True

    def better(self) -> list[str]:
        """Return in what it is better beyond chance. The Brier score follows the risk, and is no gain."""
        return [name for name, gap in ((RISK, self.risk), (LOSS, self.loss)) if gap.high < 0]

    def shortcomings(self) -> list[str]:
        """Return why the figures speak against activating, as clauses; none where they do not.

        Against an active calibration: worse beyond chance in any, or better beyond chance in neither risk nor
        loss. Against raw scores, which anything will do for but what is worse: not below them. Their risk is
        finite only by the eps that they are charged, so they must be beaten in projection Brier, too. And it
        must be informative: a map fitted on noise beats raw scores by saying the same of every prompt.
        """
        against = self._against_raw() if self.against is None else self._against_active()
        if not self.informative:
            against.append(
                "on held-out prompts neither its confidence nor P(correct) tells more than one number for "
                "all prompts would"
            )
        return against

    def _against_raw(self) -> list[str]:
        worse = [name for name, gap in ((BRIER, self.brier), (RISK, self.risk)) if not gap.value < 0]
        return [f"on held-out prompts it is not better than raw scores ({', '.join(worse)})"] if worse else []

    def _against_active(self) -> list[str]:
        gaps = [(BRIER, self.brier), (RISK, self.risk), (LOSS, self.loss)]
        worse = [name for name, gap in gaps if gap.low > 0]
        if worse:
            return [f"on held-out prompts it is worse than the active calibration ({', '.join(worse)})"]
        if not self.better():
            return [
                f"its gain over the active calibration on held-out prompts may be chance ({RISK}, {LOSS})"
            ]
        return []


def decide_activation(
    calibration: Calibration,
    active: Calibration | None,
    asked: ActivateOption,
    gains: Gains,
    *,
    has_evidence: bool,
    refused: int,
    num_rows: int,
    doubts: Sequence[str] = (),
) -> tuple[bool, str]:
    """Return whether to activate, and why, as a sentence.

    has_evidence: whether all of the rows have log-probabilities; refused: how many of `num_rows` the LLM
    server refused; doubts: why the rows are too poor to judge it by, as clauses.
    """
    activated, reason = asked == "always", f"{'A' if asked == 'always' else 'Not a'}ctivated as asked."
    if asked == "if_better":
        against = [*_vetoes(calibration, active, has_evidence), *gains.shortcomings(), *doubts]
        activated = not against
        reason = f"Not activated: {'; '.join(against)}." if against else f"Activated: {_gain(gains)}."
    if activated and refused > MAX_REFUSED_SHARE * num_rows:
        return False, (
            f"Not activated: the LLM server refused {refused} of {num_rows} rows, more than 2 %, and those "
            "left may be unlike what is asked. Retry the job to ask for them again, or activate the "
            "calibration yourself."
        )
    return activated, reason


def _vetoes(calibration: Calibration, active: Calibration | None, has_evidence: bool) -> list[str]:
    """Return what speaks against it whatever the figures say."""
    if active is None:
        return []
    drawn = [one for num_samples, one in active.selectors.items() if num_samples]
    takes_evidence = active.evidence or any(one.map_for(None) is None for one in drawn)
    every = [
        (calibration.num_samples < active.num_samples, _FEWER),
        # A risk that is lower by chance on a few rows is not worth what they have too few verdicts for.
        (bool(drawn) and not any(calibration.selectors), _SILENT),
        (0 in active.selectors and 0 not in calibration.selectors, _SILENT),
        # Judged without log-probabilities, it is not the map that is served where there are some.
        (takes_evidence and not has_evidence, _BLIND),
    ]
    return [why for holds, why in every if holds]


def _gain(gains: Gains) -> str:
    if gains.against is None:
        return "none was active for this set-up, and on held-out prompts it is better than raw scores"
    better = ", ".join(gains.better())
    return f"on held-out prompts it is better than the active calibration, and not by chance ({better})"
