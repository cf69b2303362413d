"""The main use case: draw answers, embed them, take the spectrum, serve it calibrated."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from service.domain.calibration import Calibration, CalibrationSource, NoCalibrations, Parameters
from service.domain.errors import DeadlineExceeded, LLMBadResponse, NotFound, TooFewSamples
from service.domain.ids import new_id
from service.domain.models import (
    EmbedderIdentity,
    Fingerprint,
    Generation,
    GenerationRequest,
    Usage,
    caller_fingerprint,
    service_fingerprint,
)
from service.domain.outcomes import distinct, outcome_vectors, supplied_draws, texts_to_embed
from service.domain.ports import Embedder, LanguageModel
from service.domain.scoring.indistinct import num_indistinct
from service.spectral.gram import Spectrum, spectrum
from service.spectral.maps import Identity, ServedSpectrum

Counts = NDArray[np.int_]
MIN_SAMPLES = 2
MAX_MODES = 5
TRUNCATED_SHARE = 0.5  # of the answers cut by max_tokens, from which on a score warns
# Of a deadline, what is kept for embedding the answers that have come by then.
EMBED_SHARE, EMBED_RESERVE_S = 0.1, 0.5
# An eigh of this many distinct answers takes about a millisecond; larger ones leave the event loop alone.
INLINE_DISTINCT = 64
INLINE_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True)
class ScoreCommand:
    """What to score: a prompt for the LLM (`generation`), or `samples` that the caller has drawn.

    `calibration`: "active", "none", or the id of a stored one.
    """

    generation: GenerationRequest | None = None
    samples: tuple[str, ...] | None = None
    source_label: str = ""
    calibration: str = "active"
    arrived: float | None = None  # time.perf_counter() when the request came in


@dataclass(frozen=True, slots=True)
class Warning:  # noqa: A001 - the wire's word; the builtin is not used here
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
    """The calibration that a score used, with the parameters of its number of answers."""

    calibration: Calibration
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class Score:
    """The result. `served` is what to act on, `raw` the spectrum as it came; equal when not calibrated."""

    id: str
    answer: str
    served: ServedSpectrum
    raw: ServedSpectrum
    applied: Applied | None
    warnings: tuple[Warning, ...]
    model: str | None
    embedder: str
    samples: tuple[str, ...]
    num_distinct: int
    num_truncated: int
    num_empty: int
    modes: tuple[Mode, ...]
    usage: Usage | None
    timings_s: dict[str, float] = field(default_factory=dict)


class Scorer:
    """Scores prompts. `in_flight` counts the scores under way: other work gives way to them.

    `calibrations` may be set until the first score: what makes calibrations needs to know of the scores.
    """

    def __init__(
        self, llm: LanguageModel, embedder: Embedder, calibrations: CalibrationSource | None = None
    ) -> None:
        self._llm = llm
        self._embedder = embedder
        self.calibrations = calibrations or NoCalibrations()
        self.in_flight = 0

    async def score(self, command: ScoreCommand) -> Score:
        """Return the score of a prompt or of supplied samples.

        Raises TooFewSamples for fewer than two supplied samples; DeadlineExceeded or LLMBadResponse when
        fewer than two answers came; NotFound for an unknown calibration; and what the LLM and the embedder
        raise.
        """
        self.in_flight += 1
        try:
            return await self._score(command)
        finally:
            self.in_flight -= 1

    async def _score(self, command: ScoreCommand) -> Score:
        marks = Stopwatch(command.arrived)
        chosen = await self._named_calibration(command.calibration)
        marks.lap("queue")
        generation = await self._draw(command)
        marks.lap("generate")
        marks.move("generate", "queue", generation.queued_s)
        texts, index = distinct([draw.text for draw in generation.draws])
        to_embed = texts_to_embed(texts, embeds_empty=self._embedder.embeds_empty)
        embedded = await self._embedder.embed(to_embed)
        vectors = outcome_vectors(texts, embedded.vectors)
        marks.lap("embed")
        counts = np.bincount(index, minlength=len(texts))
        spectrum_ = await self._spectrum(vectors, counts, embedded.made_by.dimension)
        alike = await self._alike(texts, vectors)
        applied, warnings = self._applied(command, chosen, generation, embedded.made_by)
        score = self._assemble(spectrum_, texts, counts, generation, applied, embedded.made_by)
        marks.lap("spectrum")
        about_answers = [*_partial(generation), *_truncated(generation, command)]
        about_answers += _indistinct(alike, len(texts))
        return _finish(score, [*about_answers, *warnings], command, marks)

    async def _named_calibration(self, choice: str) -> Calibration | None:
        """Look an explicitly named calibration up before the LLM is put to work."""
        if choice in ("active", "none"):
            return None
        found = await self.calibrations.get(choice)
        if found is None:
            raise NotFound("No calibration has the id given in `calibration`.")
        return found

    async def _draw(self, command: ScoreCommand) -> Generation:
        if command.generation is None:
            return _supplied(command.samples or ())
        generation = await self._llm.generate(_in_time(command.generation, command.arrived))
        came, asked = len(generation.draws), generation.requested
        if came >= MIN_SAMPLES:
            return generation
        if generation.missing_reason == "deadline":
            raise DeadlineExceeded(
                f"Only {came} of {asked} answers came before the deadline; a score takes two."
            )
        raise LLMBadResponse(f"The LLM server gave only {came} of {asked} answers; a score takes two.")

    async def _spectrum(self, vectors: NDArray[np.float32], counts: Counts, dimension: int) -> Spectrum:
        if len(counts) <= INLINE_DISTINCT:
            return spectrum(vectors, counts, dimension=dimension)
        return await asyncio.to_thread(spectrum, vectors, counts, dimension=dimension)

    async def _alike(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> int:
        if _much(texts):
            return await asyncio.to_thread(num_indistinct, texts, vectors)
        return num_indistinct(texts, vectors)

    def fingerprint(
        self,
        command: ScoreCommand,
        generation: Generation | None = None,
        made_by: EmbedderIdentity | None = None,
    ) -> Fingerprint:
        """Return what a calibration must have been fitted with to fit this request.

        Without the answers, the model is the one that answered such a request last; without `made_by`, who
        made their vectors, the embedder is the present one.
        """
        embedder = made_by or self._embedder.identity
        if command.generation is None:
            return caller_fingerprint(command.source_label, embedder)
        request = command.generation
        identity = self._llm.identity(request)
        drawn_by = identity.of(generation) if generation else identity
        return service_fingerprint(drawn_by, request.sampling, embedder)

    def _applied(
        self,
        command: ScoreCommand,
        chosen: Calibration | None,
        generation: Generation,
        made_by: EmbedderIdentity,
    ) -> tuple[Applied | None, list[Warning]]:
        if command.calibration == "none":
            return None, []
        # Only now: which model answered is known only once it has.
        wanted = self.fingerprint(command, generation, made_by)
        return choose(wanted, len(generation.draws), chosen, self.calibrations)

    def _assemble(
        self,
        found: Spectrum,
        texts: Sequence[str],
        counts: Counts,
        generation: Generation,
        applied: Applied | None,
        made_by: EmbedderIdentity,
    ) -> Score:
        raw = Identity().serve(found.eigenvalues, found.dimension)
        served = raw
        if applied:
            map_ = applied.calibration.map_for(len(generation.draws))
            served = map_.serve(found.eigenvalues, found.dimension)
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
            num_empty=sum(not text for text in texts_drawn),
            modes=modes,
            usage=generation.usage if generation.model else None,
        )


class Stopwatch:
    """Seconds by stage, from the arrival of the request on."""

    def __init__(self, start: float | None = None) -> None:
        self._start = self._last = time.perf_counter() if start is None else start
        self.laps: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """Close a stage."""
        now = time.perf_counter()
        self.laps[stage] = now - self._last
        self._last = now

    def move(self, source: str, target: str, seconds: float) -> None:
        """Count seconds of one stage to another."""
        moved = min(seconds, self.laps[source])
        self.laps[source] -= moved
        self.laps[target] += moved

    def total(self) -> dict[str, float]:
        """Return the laps and their total."""
        return {**self.laps, "total": self._last - self._start}


def choose(
    wanted: Fingerprint, num_samples: int, named: Calibration | None, source: CalibrationSource
) -> tuple[Applied | None, list[Warning]]:
    """Return the calibration that fits, or None with the warning that says why none does.

    A named one is held to the same test as the active one: it is never applied where it does not fit.
    """
    candidate = named or source.active(wanted.key())
    if candidate is None:
        return None, [_no_fit(wanted, source.any_active())]
    differs = candidate.fingerprint.differs(wanted)
    if num_samples > candidate.num_samples:
        differs.append("num_samples")
    if differs:
        return None, [_mismatch(candidate, differs)]
    return Applied(candidate, candidate.parameters[num_samples]), []


def _no_fit(wanted: Fingerprint, active: list[Calibration]) -> Warning:
    if not active:
        return Warning("calibration_missing", "No calibration is active: raw values are served.")
    nearest = min(active, key=lambda calibration: len(calibration.fingerprint.differs(wanted)))
    return _mismatch(nearest, nearest.fingerprint.differs(wanted))


def _mismatch(calibration: Calibration, differs: list[str]) -> Warning:
    message = (
        f"Calibration {calibration.id} was fitted with another {', '.join(differs)}: raw values are served."
    )
    return Warning("calibration_mismatch", message, tuple(differs))


def _in_time(request: GenerationRequest, arrived: float | None) -> GenerationRequest:
    """Return the request with the deadline that leaves time to embed what has come by then."""
    if request.deadline_s is None:
        return request
    gone = 0.0 if arrived is None else time.perf_counter() - arrived
    reserved = min(EMBED_SHARE * request.deadline_s, EMBED_RESERVE_S)
    return replace(request, deadline_s=max(request.deadline_s - gone - reserved, 0.001))


def _supplied(samples: Sequence[str]) -> Generation:
    if len(samples) < MIN_SAMPLES:
        raise TooFewSamples("At least two samples are needed.")
    draws = supplied_draws(samples)
    return Generation(draws, requested=len(draws), model="")


def _partial(generation: Generation) -> list[Warning]:
    came, asked = len(generation.draws), generation.requested
    if came >= asked:
        return []
    why = "before the deadline" if generation.missing_reason == "deadline" else "without an error"
    return [Warning("partial_samples", f"{came} of {asked} answers came {why}; the score rests on those.")]


def _truncated(generation: Generation, command: ScoreCommand) -> list[Warning]:
    """Return a warning when half of the answers or more were cut: their meaning may not have come yet."""
    cut, came = sum(draw.truncated for draw in generation.draws), len(generation.draws)
    if command.generation is None or cut < TRUNCATED_SHARE * came:
        return []
    limit = command.generation.sampling.max_tokens
    message = (
        f"{cut} of {came} answers were cut by max_tokens ({limit}); the score rests on their beginnings. "
        "Allow more tokens, or have the model answer more briefly."
    )
    return [Warning("truncated_samples", message)]


def _much(texts: Sequence[str]) -> bool:
    """Tell whether comparing the texts would hold the event loop up."""
    return len(texts) > INLINE_DISTINCT or sum(map(len, texts)) > INLINE_CHARACTERS


def _indistinct(alike: int, distinct_: int) -> list[Warning]:
    if not alike:
        return []
    message = (
        f"The embedder cannot tell {alike} of the {distinct_} distinct answers from others that say other "
        "things (characters unknown to it, or texts equal as far as it reads): they count as agreement."
    )
    return [Warning("indistinct_answers", message)]


def _finish(score: Score, warnings: list[Warning], command: ScoreCommand, marks: Stopwatch) -> Score:
    laps = marks.total()
    if command.generation is None:
        del laps["generate"]
    return replace(score, warnings=tuple(warnings), timings_s=laps)


def find_modes(
    found: Spectrum, served: ServedSpectrum, texts: Sequence[str], counts: Counts
) -> tuple[Mode, ...]:
    """Return a mode for each of the leading eigenvectors (at most MAX_MODES), largest eigenvalue first.

    The answer of a mode is the one with the largest squared projection, ties to the most frequent.
    """
    squared = np.square(found.projections)
    nearest = squared.argmax(axis=1)
    share = np.bincount(nearest, weights=found.weights, minlength=found.rank)
    modes = []
    for i in range(min(found.rank, MAX_MODES)):
        tied = np.flatnonzero(squared[:, i] >= squared[:, i].max() - 1e-9)
        best = tied[np.argmax(counts[tied])]
        modes.append(Mode(float(served.eigenvalues[i]), float(share[i]), texts[best]))
    return tuple(modes)
