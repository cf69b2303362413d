"""What the log-probabilities of the answers to one prompt say."""

import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import Calibration, Method
from service.embedding.outcomes import log_probabilities
from service.ids import new_id
from service.llm.port import Draw, EmbedderIdentity, Generation, GenerationRequest, Usage
from service.spectral.evidence import EvidenceMap, mean_log_probability, missing_mass
from service.spectral.maps import DepolarizedMap, Identity, ServedSpectrum, TemperatureMap
from service.spectral.spectrum import Spectrum


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the log-probabilities of the answers say.

    `missing_mass`: u in (0, 1), the mass that the LLM gives to none of the answers; higher = less certain.
    `mean_log_probability`: of whole answers, in nats, 0 at most; higher = more certain.
    """

    missing_mass: float
    mean_log_probability: float


def evidence_of(draws: Sequence[Draw], index: NDArray[np.int_]) -> Evidence | None:
    """Return the evidence of the answers, None unless each has a log-probability.

    index: (m,) which distinct text each answer is.
    """
    totals = log_probabilities(draws)
    return None if totals is None else Evidence(missing_mass(totals, index), mean_log_probability(totals))


# What a score says of single texts: how likely they are, whether right, and whether to let one through.


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked of a decision.

    `error`: the share of wrong ones allowed among the answers let through, in (0, 1). `confidence`: with
    which probability it is kept, in (0, 1). `by_default`: nobody named one, so there is a decision only
    where a calibration can make it.
    """

    error: float
    confidence: float
    by_default: bool = False


@dataclass(frozen=True, slots=True)
class JudgedCandidate:
    """A text that the caller has, judged by the answers drawn.

    `probability`: p(y) under the served matrix, in [0, lambda_max]; higher = more likely meant. `mode`: the
    eigenvector that it belongs to, 0 the largest; None: it says what no answer said. `probability_correct`:
    in [0, 1]; None where no model tells, or `mode` is None. `share`: of the answers drawn, how many of 1 lie
    closest to that eigenvector; 0 without one.
    """

    probability: float
    mode: int | None
    probability_correct: float | None
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to let a text through.

    `reason`: why, and so what to do with the text, in a sentence.
    `threshold`: the least P(correct) that is let through; None where the target cannot be promised.
    `coverage`: the share of questions, of those that set the threshold, that it lets through, in [0, 1].
    """

    action: Literal["answer", "abstain"]
    target: Target
    reason: str
    threshold: float | None = None
    coverage: float = 0.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a score says of the candidate, and of its own `answer`.

    `probability_correct`: of the answer, in [0, 1]; None where no model tells. `unlike`: the prompt is too
    unlike the calibration's rows for anything to be let through.
    """

    candidate: JudgedCandidate | None = None
    probability_correct: float | None = None
    decision: Decision | None = None
    unlike: bool = False

    @property
    def supported(self) -> bool:
        """Whether an answer drawn supports the text that a decision is about: its own `answer` always."""
        return self.candidate is None or self.candidate.mode is not None

    @property
    def decisive(self) -> float | None:
        """P(correct) of the text that a decision is about: the candidate where there is one."""
        return self.probability_correct if self.candidate is None else self.candidate.probability_correct


# What is asked of a score, and what it says: put together from the answers and their spectrum.

MAX_MODES = 5


@dataclass(frozen=True, slots=True)
class ScoreCommand:
    """What to score: a prompt for the LLM (`generation`), or `samples` that the caller has drawn.

    `logprobs`: of each whole sample, in nats; None: not known.
    `calibration`: "active", "none", or the id of a stored one.
    `candidate`: a text to judge by the answers; it is none of them. `target`: what a decision is to keep.
    `asked`: the text that supplied samples answer, None where it is not known.
    """

    generation: GenerationRequest | None = None
    samples: tuple[str, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    source_label: str = ""
    calibration: str = "active"
    candidate: str | None = None
    target: Target | None = None
    asked: str | None = None
    arrived: float | None = None  # time.perf_counter() when the request came in

    @property
    def question(self) -> str | None:
        """Return the text of what is asked, as `question_text` has it."""
        return self.asked if self.generation is None else self.generation.question

    @property
    def num_samples(self) -> int:
        """Return how many answers are asked for."""
        return len(self.samples or ()) if self.generation is None else self.generation.num_samples


@dataclass(frozen=True, slots=True)
class ScoreWarning:
    """Something that the caller should know; `code` is stable."""

    code: str
    message: str
    differs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mode:
    """One latent meaning: an eigenvector.

    `probability`: its served eigenvalue. `share`: share of the samples that lie closest to it. `answer`: the
    sample most aligned with it.
    """

    probability: float
    share: float
    answer: str


@dataclass(frozen=True, slots=True)
class Applied:
    """The calibration that a score used: the map for its number of answers, and for its evidence.

    `evidence`: the one that `map` was made by; None where the answers have no log-probabilities, or the
    calibration needs none.
    """

    calibration: Calibration
    map: DepolarizedMap | TemperatureMap
    evidence: EvidenceMap | None = None

    @property
    def method(self) -> Method:
        """Return how the score was served, which without log-probabilities is not by evidence."""
        if self.evidence is not None:
            return "evidence"
        return "depolarized" if isinstance(self.map, DepolarizedMap) else "temperature"


@dataclass(frozen=True, slots=True)
class Score:
    """The result. `served` is what to act on, `raw` the spectrum as it came; equal when not calibrated.

    `ood_p_value`: of a prompt like the calibration's rows, in (0, 1]; lower = less like them. None where no
    calibration is applied, or one that does not know its rows' prompts.
    """

    id: str
    answer: str
    served: ServedSpectrum
    raw: ServedSpectrum
    applied: Applied | None
    warnings: tuple[ScoreWarning, ...]
    model: str | None
    embedder: str
    samples: tuple[str, ...]
    num_distinct: int
    num_truncated: int
    num_empty: int
    modes: tuple[Mode, ...]
    usage: Usage | None
    evidence: Evidence | None = None
    ood_p_value: float | None = None
    judgement: Judgement = field(default_factory=Judgement)
    timings_s: dict[str, float] = field(default_factory=dict)


class Stopwatch:
    """Where the time of a score went: seconds by stage, from the arrival of the request on."""

    def __init__(self, start: float | None = None) -> None:
        self._start = self._last = time.perf_counter() if start is None else start
        self.laps: dict[str, float] = {}

    def elapsed_s(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self._start

    def lap(self, stage: str) -> None:
        """Close a stage."""
        now = time.perf_counter()
        self.laps[stage] = now - self._last
        self._last = now

    def move(self, source: str, target: str, seconds: float) -> None:
        """Count seconds of one stage to another."""
        # `seconds` was not measured between laps, so it may be more than the stage has.
        moved = min(seconds, self.laps[source])
        self.laps[source] -= moved
        self.laps[target] += moved

    def resume(self) -> None:
        """Leave out the time since the last stage: nothing was done in it."""
        gap = time.perf_counter() - self._last
        self._start += gap
        self._last += gap

    def total(self) -> dict[str, float]:
        """Return the laps and their total."""
        return {**self.laps, "total": self._last - self._start}


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Answers that wait to be scored, and the command that asked for them.

    `chosen`: the calibration that it names, None for the active one or none. `marks`: the time until now.
    """

    command: ScoreCommand
    chosen: Calibration | None
    generation: Generation
    marks: Stopwatch


def assemble(
    found: Spectrum,
    texts: Sequence[str],
    counts: NDArray[np.int_],
    generation: Generation,
    applied: Applied | None,
    made_by: EmbedderIdentity,
    evidence: Evidence | None,
) -> Score:
    """Return the score of the answers whose spectrum was `found`, without its warnings and timings.

    texts, counts: the distinct answers and how often each came.
    """
    raw = Identity().serve(found.eigenvalues, found.dimension)
    served = applied.map.serve(found.eigenvalues, found.dimension) if applied else raw
    modes = find_modes(found, served, texts, counts)
    texts_drawn = tuple(draw.text for draw in generation.draws)
    return Score(
        id=new_id("scr"),
        answer=modes[0].answer,
        served=served,
        raw=raw,
        applied=applied,
        warnings=(),
        model=generation.model or None,
        embedder=made_by.name,
        samples=texts_drawn,
        num_distinct=len(texts),
        num_truncated=sum(draw.truncated for draw in generation.draws),
        num_empty=generation.num_empty + sum(not text for text in texts_drawn),
        modes=modes,
        usage=generation.usage if generation.model else None,
        evidence=evidence,
    )


def find_modes(
    found: Spectrum, served: ServedSpectrum, texts: Sequence[str], counts: NDArray[np.int_]
) -> tuple[Mode, ...]:
    """Return a mode for each of the leading eigenvectors (at most MAX_MODES), largest eigenvalue first.

    The answer of a mode is the one with the largest squared projection, ties to the most frequent.
    """
    squared = np.square(found.projections)
    share = shares_by_mode(found)
    modes = []
    for i in range(min(found.rank, MAX_MODES)):
        # Equal but for rounding.
        tied = np.flatnonzero(squared[:, i] >= squared[:, i].max() - 1e-9)
        best = tied[np.argmax(counts[tied])]
        modes.append(Mode(float(served.eigenvalues[i]), float(share[i]), texts[best]))
    return tuple(modes)


def shares_by_mode(found: Spectrum) -> NDArray[np.float64]:
    """Return the shares (r,) of the answers that lie closest to each eigenvector; they sum to 1."""
    nearest = np.square(found.projections).argmax(axis=1)
    return np.bincount(nearest, weights=found.weights, minlength=found.rank).astype(np.float64)


# What a monitoring system is told of each score.

# The caller's `traceparent` (W3C Trace Context), for all that is done for its request, in other tasks, too.
TRACEPARENT: ContextVar[str] = ContextVar("traceparent", default="")


class ScoreEvents(Protocol):
    """Tells of scores elsewhere; no call waits, and none raises."""

    async def start(self) -> None:
        """Begin to send."""

    async def stop(self) -> None:
        """Send what is left, if that goes soon; idempotent."""

    def scored(self, score: Score) -> None:
        """Tell of a score."""

    def failed(self, code: str) -> None:
        """Tell of an error instead of a score."""


class NoEvents:
    """Tells nobody."""

    async def start(self) -> None:
        """Nothing to begin."""

    async def stop(self) -> None:
        """Nothing is left."""

    def scored(self, score: Score) -> None:
        """Do nothing."""

    def failed(self, code: str) -> None:
        """Do nothing."""
