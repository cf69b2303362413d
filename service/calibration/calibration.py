"""Calibrations: fingerprint, maps, correctness models and thresholds by number of answers."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, Field

from service.embedding.port import PAPER, EmbedderIdentity, Kernel
from service.llm.prompt import LLMIdentity, Sampling
from service.spectral.conformal import ConformalReference
from service.spectral.correctness_model import (
    AGREEMENT,
    FEATURES_OF_TOKENS,
    SELF_CHECK,
    CorrectnessModel,
    agreement,
    logit_probability,
    logit_self_check,
)
from service.spectral.evidence import EvidenceMap
from service.spectral.fit import Prior
from service.spectral.selective import SelectiveCounts
from service.spectral.spectrum import DepolarizedMap, TemperatureMap

Unit = Literal["answer", "claim"]
CALLER = "caller"
PRIOR_WEIGHT = 30.0  # number of labelled rows that the bundled questions count as (method, section 9)
SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The set-up that a calibration is bound to. Set-ups with equal fingerprints share calibrations.

    For answers supplied by a caller the LLM parts are unknown and empty; `source_label` replaces them.
    The number of answers is excluded: a calibration has parameters for each number up to its own.
    `evidence`: the source of the log-probabilities used in the fit: "token_sums" (the LLM server) or
    "supplied" (the caller); "" if the fit uses none. `unit`: the texts that are scored, whole answers or
    single claims of them. `kernel`: what answers are compared by. `comparer`: the LLM that compares them and
    the version of its prompt; "" without such an LLM. `self_check`: the LLM whose self-checks P(correct)
    uses, and the version of its prompt; "" without self-checks.
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
    sampling: dict[str, Any] = field(default_factory=dict)
    evidence: Literal["", "token_sums", "supplied"] = ""
    unit: Unit = "answer"
    kernel: Kernel = PAPER
    comparer: str = ""
    self_check: str = ""

    def parts(self) -> dict[str, Any]:
        """Return the parts by name, with sampling parameters flattened to `sampling.temperature` etc."""
        flat = asdict(self)
        sampling = flat.pop("sampling")
        # Excluded: otherwise a server that stops sending log-probabilities would lose its parameters too.
        del flat["evidence"], flat["self_check"]
        if self.unit == "answer":
            del flat["unit"]
        if self.kernel == PAPER:
            del flat["kernel"]  # as in calibrations from before there were other kernels
        if not self.comparer:
            del flat["comparer"]
        return flat | {f"sampling.{k}": v for k, v in sorted(sampling.items())}

    def described(self) -> dict[str, Any]:
        """Return the parts for display, with `evidence` and `self_check` if they were used."""
        used = {"evidence": self.evidence, "self_check": self.self_check}
        return self.parts() | {name: value for name, value in used.items() if value}

    def differs(self, other: "Fingerprint") -> list[str]:
        """Return the sorted names of the parts that differ; empty if the fingerprints match."""
        own, others = self.parts(), other.parts()
        return sorted(k for k in own.keys() | others.keys() if own.get(k) != others.get(k))

    def drawn_as(self, other: "Fingerprint") -> "Fingerprint":
        """Return this fingerprint with the parts that only answers reveal taken from `other`.

        They are the model, the comparer, and the sampling parameters that either of the two does not send.
        """
        pairs = ((name, value, other.sampling.get(name)) for name, value in self.sampling.items())
        unsent = {name: other_value for name, own, other_value in pairs if own is None or other_value is None}
        return replace(self, model=other.model, comparer=other.comparer, sampling=self.sampling | unsent)

    def key(self) -> str:
        """Return a stable hash of the parts (32 hex digits). At most one calibration is active per key."""
        return hashlib.sha256(json.dumps(self.parts(), sort_keys=True).encode()).hexdigest()[:32]


def _embedder_parts(embedder: EmbedderIdentity) -> dict[str, Any]:
    return {
        "embedder": embedder.name,
        "embedder_revision": embedder.revision,
        "embedder_precision": embedder.precision,
        "embedder_dimension": embedder.dimension,
        "kernel": embedder.kernel,
        "comparer": embedder.comparer,
    }


def with_embedder(fingerprint: Fingerprint, embedder: EmbedderIdentity) -> Fingerprint:
    """Return the fingerprint of the same answers with this embedder."""
    return replace(fingerprint, **_embedder_parts(embedder))


def service_fingerprint(llm: LLMIdentity, sampling: Sampling, embedder: EmbedderIdentity) -> Fingerprint:
    """Return the fingerprint of answers drawn by this service. The seed is excluded."""
    parameters = asdict(sampling)
    del parameters["seed"]
    parameters["stop"] = list(sampling.stop)
    parameters |= dict.fromkeys(llm.omitted)  # None: the server's own value
    return Fingerprint(SERVICE, sampling=parameters, **llm.parts(), **_embedder_parts(embedder))


def caller_fingerprint(source_label: str, embedder: EmbedderIdentity) -> Fingerprint:
    """Return the fingerprint of answers supplied by a caller under a label."""
    return Fingerprint(CALLER, source_label=source_label, **_embedder_parts(embedder))


# The judged texts: the rows' own `answer`, the dominant drawn answer, the first drawn answer (for scores that
# draw none), or texts of both kinds.
JudgedTexts = Literal["given", "dominant", "first", "mixed"]
# The meaning of a promise (method, section 11). It is shown with every promise.
PROMISE_MEANING = (
    "Of calibrations made like this one, at least the share given as confidence keeps all promises for one "
    "number of answers, on questions like the rows. So you may choose the target error after seeing which "
    "errors can be promised. Choose the number of answers beforehand."
)


def promised_number(lowest: Mapping[int, float], drawn: int) -> int:
    """Return the number of answers of the promise to show: `drawn` or, if it allows none, the best.

    lowest: the lowest error that can be promised, by number of answers.
    """
    return drawn if drawn in lowest else min(lowest, key=lambda number: (lowest[number], number))


@dataclass(frozen=True, slots=True)
class Selector:
    """A model of P(correct), and the answers that thresholds on it let through. Contains no texts.

    `map`: fitted on all rows; `model`: fitted on the features under that map. `counts`: of all rows, each
    predicted by a map and a model fitted without its fold, so their promises hold for new questions like the
    rows' and for texts like the judged ones. Judged texts that no answer supports (`dev_set.supported`) are
    never let through, as in a score.

    Without drawn answers, `map` is the map for one answer, and the judged text takes the place of that
    answer; None for claims, which are then judged by token log-probabilities.

    `is_bundled`: fitted on the bundled questions, beside selectors that are fitted on own rows.
    """

    map: DepolarizedMap | TemperatureMap | EvidenceMap | None
    model: CorrectnessModel
    counts: SelectiveCounts
    judged: JudgedTexts
    is_bundled: bool = False

    def map_for(self, missing_mass: float | None) -> DepolarizedMap | TemperatureMap | None:
        """Return the map for the features of one prompt.

        missing_mass: u of its answers or, without drawn answers, of the judged text; None without
        log-probabilities. Return None if the map needs log-probabilities and there are none, and for claims
        without drawn answers.
        """
        if isinstance(self.map, EvidenceMap):
            return None if missing_mass is None else self.map.at(missing_mass)
        return self.map


def answer_features(
    lambda_max: ArrayLike, probability: ArrayLike, p_true: ArrayLike | None = None
) -> dict[str, ArrayLike]:
    """Return the feature columns for a model of answers, (n,) or scalars: see `agreement`.

    lambda_max: of the spectrum under `Selector.map`; probability: p(y) of the judged text under it; p_true:
    its self-check, None if unknown.
    """
    return {AGREEMENT: agreement(lambda_max, probability)} | check_feature(p_true)


def claim_features(
    probability: ArrayLike, entropy: ArrayLike, p_true: ArrayLike | None = None
) -> dict[str, ArrayLike]:
    """Return the feature columns for a model of claims, (n,) each.

    p(y) is in [0, 1], entropy in nats. p_true: the self-checks of the claims, None if unknown.
    """
    return {
        "logit_probability": logit_probability(probability),
        "entropy": entropy,
    } | check_feature(p_true)


def check_feature(p_true: ArrayLike | None) -> dict[str, ArrayLike]:
    """Return the feature column of the self-checks (n,), or none if they are unknown."""
    return {} if p_true is None else {SELF_CHECK: logit_self_check(p_true)}


def token_features(
    fact_logprob: NDArray[np.float64], least_logprob: NDArray[np.float64], logprob: NDArray[np.float64]
) -> dict[str, ArrayLike]:
    """Return the feature columns for a model of claims without drawn answers: log-probabilities (n,)."""
    return dict(zip(FEATURES_OF_TOKENS, (fact_logprob, least_logprob, logprob), strict=True))


Method = Literal["depolarized", "temperature", "evidence"]
# Options of callers: a map or the best of several, and when to activate it.
MethodOption = Literal["depolarized", "temperature", "evidence", "both", "auto"]
ActivateOption = Literal["if_better", "always", "never"]


@dataclass(frozen=True, slots=True)
class Curvature:
    """The optimum (p,) of a map's parameters on n rows, and the Hessian (p, p) of the mean risk there."""

    optimum: tuple[float, ...]
    hessian: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class JudgedRows:
    """Features and verdicts of n bundled questions, for the promises of later fits.

    columns: features (n,) by name, each under a map fitted without the row's fold. right: (n,) verdicts.
    supported: (n,), whether a score may let the text through. fold: (n,).
    """

    columns: Mapping[str, tuple[float, ...]]
    right: tuple[bool, ...]
    supported: tuple[bool, ...]
    fold: tuple[int, ...]


# The questions of a calibration: the bundled ones, the user's own, or few of the user's, with promises that
# also count the bundled ones.
Origin = Literal["bundled", "both", "own"]


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted calibration. It never changes once stored.

    `parameters`: one entry for each number of answers from 2 to `num_samples`, the number drawn for the
    fit; the entry of `num_samples` is the headline. For "temperature", g = 0. `eps`: the null eigenvalue of
    the fit. It has no effect on served scores, but T is meaningless without it.

    `evidence`: for the method "evidence" only, one map for each number of answers from 1 to `num_samples`;
    `parameters` are then those of `depolarized`, for answers without log-probabilities.

    `selectors`: by number of answers, including 0, if the verdicts on the rows allow a model of P(correct).
    `recommended`: the number of answers that the report recommends; None without a recommendation.

    Only calibrations of `origin` "bundled" have `curvatures` (the optima of all maps, by method and number of
    answers) and `judged` (the rows, by number of answers), for later fits of the same LLM.

    `reference`: the rows' prompts, for the out-of-distribution check; None in lists, which do not load it.
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
    origin: Origin = "own"
    curvatures: Mapping[str, Mapping[int, Curvature]] = field(default_factory=dict)
    judged: Mapping[int, JudgedRows] = field(default_factory=dict)
    reference: ConformalReference | None = field(default=None, compare=False, repr=False)

    def headline(self) -> DepolarizedMap:
        """Return the parameters for the full number of answers."""
        return self.parameters[self.num_samples]

    def evidence_table(self) -> list[dict[str, Any]]:
        """Return the evidence map for each number of answers as JSON values; empty for other methods."""
        return [
            {
                "num_samples": m,
                "temperature": map_.temperature,
                "evidence_intercept": map_.intercept,
                "evidence_slope": map_.slope,
            }
            for m, map_ in sorted(self.evidence.items())
        ]

    def prior(self, method: str, num_samples: int) -> Prior | None:
        """Return the prior of a map for later fits on rows of the same LLM; None without `curvatures`."""
        of_method = self.curvatures.get(method)
        if not of_method:
            return None
        nearest = min(of_method, key=lambda size: abs(math.log(size / num_samples)))
        curvature = of_method[nearest]
        return Prior(np.array(curvature.optimum), np.array(curvature.hessian), PRIOR_WEIGHT)

    def map_for(self, num_samples: int, missing_mass: float | None = None) -> DepolarizedMap | TemperatureMap:
        """Return the map for a number of answers.

        missing_mass: u of the answers, in [0, 1]; None without log-probabilities. Raises KeyError for more
        answers than were drawn for the fit, and for a single answer without log-probabilities.
        """
        if self.evidence and missing_mass is not None:
            return self.evidence[num_samples].at(missing_mass)
        chosen = self.parameters[num_samples]
        return TemperatureMap(chosen.temperature, self.eps) if self.method == "temperature" else chosen


@dataclass(frozen=True, slots=True)
class CalibrationRecord:
    """A stored calibration with its changing state: whether it is active, and whether its data are kept.

    `projection_ece`: of its map on held-out rows, from its report; `raw_projection_ece`: of raw scores there.
    """

    calibration: Calibration
    active: bool
    activated_at: datetime | None
    job_id: str | None
    num_rows: int
    data_kept: bool
    projection_ece: float | None = None
    raw_projection_ece: float | None = None


class Activation(BaseModel):
    """An activation of a calibration."""

    calibration_id: str = Field(description="Id of the calibration.")
    activated_at: datetime = Field(description="Time of the activation.")
    by: str = Field(
        description="Author of the activation: the job's id; `key_…` and its name; `settings key`; `no key` "
        "if none was needed."
    )
    reason: str = Field(description="Reason of the activation.")
    replaced: str | None = Field(description="Id of the calibration that was active until then.")
    fingerprint_key: str = Field(description="Key of the set-up. One calibration is active for each key.")
