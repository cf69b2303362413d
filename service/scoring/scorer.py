"""The use case: draw answers, embed them, take the spectrum, serve it calibrated, judge texts by it."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import (
    Calibration,
    Fingerprint,
    Unit,
    caller_fingerprint,
    service_fingerprint,
)
from service.calibration.default import DefaultCalibration
from service.calibration.store import SqlCalibrations
from service.embedding.port import (
    FAILED,
    Embedded,
    Embedder,
    EmbedderIdentity,
    EmptyAnswers,
    distinct,
    outcome_vectors,
    supplied_draws,
    texts_to_embed,
    usable,
)
from service.errors import (
    DeadlineExceeded,
    EigencalError,
    EmbedderUnavailable,
    InvalidRequest,
    LLMBadResponse,
    NotFound,
    NoUsableAnswers,
    TooFewSamples,
)
from service.ids import new_id
from service.llm.port import Draw, Generation, GenerationRequest, LanguageModel, is_blank
from service.scoring.claims import ClaimScorer, ClaimScores, Said
from service.scoring.judging import (
    Applied,
    Basis,
    basis_of,
    calibration_used,
    calibration_used_alone,
    evidence_of,
    indistinct_warning,
    judge,
    judge_alone,
    num_indistinct,
    partial_warning,
    rank_alone,
    rank_score,
    truncated_warning,
    with_candidate,
)
from service.scoring.score import (
    CalibrationUsed,
    Evidence,
    FullSpectrum,
    Judgement,
    Score,
    ScoreCommand,
    ScoreWarning,
    SpectrumValues,
    Timings,
    TokenUsage,
    warning,
)
from service.scoring.telemetry import NO_SPANS, Spans
from service.spectral.spectrum import spectrum
from service.spectral.text_scores import words

MIN_SAMPLES = 2
TOO_FEW = (
    "A score takes two answers. One is enough where it has a log-probability and a calibration by evidence "
    "fits the request."
)

# Of a deadline, what is kept for embedding the answers that have come by then.
EMBED_SHARE, EMBED_RESERVE_S = 0.1, 0.5


def in_time(request: GenerationRequest, arrived: float | None) -> GenerationRequest:
    """Return the request with the deadline that leaves time to embed what has come by then."""
    if request.deadline_s is None:
        return request
    gone = 0.0 if arrived is None else time.perf_counter() - arrived
    reserved = min(EMBED_SHARE * request.deadline_s, EMBED_RESERVE_S)
    return replace(request, deadline_s=max(request.deadline_s - gone - reserved, 0.001))


def too_few(generation: Generation, request: GenerationRequest | None) -> EigencalError:
    """Return the error for no answer, or a single one that no calibration by evidence serves."""
    came, empty, asked = len(generation.draws), generation.num_empty, generation.requested
    if request is None and empty:
        return TooFewSamples(f"{empty} of {asked} samples are empty, which are no answers. {TOO_FEW}")
    if request is not None and empty and came + empty >= min(asked, MIN_SAMPLES):
        return NoUsableAnswers(
            f"{empty} of {came + empty} answers drawn hold no text (only reasoning, a tool call, or nothing)"
            f"; a score takes two. Each may have {request.sampling.max_tokens} tokens: allow a model that "
            "reasons more (EIGENCAL_MAX_TOKENS, or `sampling.max_tokens`). Where an empty answer means "
            "something, set EIGENCAL_EMPTY_ANSWERS."
        )
    if came >= asked:
        return TooFewSamples(TOO_FEW)
    if generation.missing_reason == "deadline":
        return DeadlineExceeded(
            f"Only {came} of {asked} answers came before the deadline; a score takes two."
        )
    return LLMBadResponse(f"The LLM server gave only {came} of {asked} answers; a score takes two.")


NO_EVIDENCE = warning(
    "evidence_missing",
    "The calibration uses log-probabilities, and these answers came without: they are served by its plain "
    "parameters.",
)

NO_CALIBRATION = warning("calibration_missing", "No calibration is active: raw values are served.")
BY_DEFAULT = warning(
    "default_calibration",
    "Served by the default calibration: fitted on short answers of a small LLM to trivia questions, better "
    "than raw values wherever it was tried. Ten labelled questions make one of your own (POST /calibrate).",
)

RANKED_BY_DEFAULT = warning(
    "default_calibration",
    "Ranked by the default calibration, fitted on short answers of a small LLM to trivia questions: "
    "`rank_score` is a number to sort by. Ten labelled questions make a calibration of your own (POST "
    "/calibrate).",
)

# Below it a prompt is called unlike the rows: at most that share of those that are like them, too.
MAX_OOD_P_VALUE = 0.02


def _applied_to(calibration: Calibration, num_samples: int, evidence: Evidence | None) -> Applied | None:
    """Return a calibration at so many answers; None for more than it knows, or one without evidence."""
    given = evidence if calibration.evidence else None
    if num_samples > calibration.num_samples or (num_samples == 1 and given is None):
        return None
    if given is None:
        return Applied(calibration, calibration.map_for(num_samples))
    served = calibration.map_for(num_samples, given.missing_mass)
    return Applied(calibration, served, calibration.evidence[num_samples])


def fitting(
    wanted: Fingerprint, named: Calibration | None, source: SqlCalibrations, *, answered: bool, model: str
) -> tuple[Calibration | None, list[ScoreWarning]]:
    """Return the calibration that fits a request to which no answer was drawn, or None and why.

    named: one of claims is asked for with the whole answer's, too; one of answers leaves claims the active
    one. answered: whether the LLM has told what `wanted` holds; else the parts that only answers tell are
    open. model: the one that answered the caller, "" where it is not known.
    """
    if named is None or (wanted.unit == "claim" and named.fingerprint.unit == "answer"):
        every = [one for one in source.any_active() if one.fingerprint.unit == wanted.unit]
    else:
        every = [named]
    for one in every:
        told = replace(wanted.drawn_as(one.fingerprint), model=model or one.fingerprint.model)
        if not one.fingerprint.differs(wanted if answered else told):
            return one, []
    if not every:
        return None, [
            warning("calibration_missing", "No calibration is active: the candidate is not judged.")
        ]
    nearest = min(every, key=lambda one: len(one.fingerprint.differs(wanted)))
    return None, [_mismatch(nearest, nearest.fingerprint.differs(wanted))]


def ood_p_value(
    calibration: Calibration | None, question: NDArray[np.float32] | None, draws: Sequence[Draw] = ()
) -> float | None:
    """Return the p-value of a prompt that is like the rows of a calibration (method, section 12).

    question: its vector (d,), by the embedder of the calibration; None for a prompt without text.
    """
    if calibration is None or calibration.reference is None:
        return None
    num_words = np.array([len(words(draw.text)) for draw in draws], dtype=np.int_)
    return calibration.reference.p_value(question, num_words)


def out_of_distribution(p_value: float | None) -> list[ScoreWarning]:
    """Return a warning when a prompt is unlike the rows of the calibration."""
    if p_value is None or p_value >= MAX_OOD_P_VALUE:
        return []
    message = (
        f"The question, or the length of its answers, is unlike the calibration's rows (p = {p_value:.2g}): "
        "what the calibration says is said of questions like those."
    )
    return [warning("out_of_distribution", message)]


def _mismatch(calibration: Calibration, differs: list[str]) -> ScoreWarning:
    message = f"Calibration {calibration.id} was fitted with another {', '.join(differs)}: it does not serve."
    return warning("calibration_mismatch", message, tuple(differs))


P = ParamSpec("P")
T = TypeVar("T")

LATE_S = 1.0  # by which a score may miss its deadline: better a little late than not at all

# An eigh of this many distinct answers takes about a millisecond; larger ones leave the event loop alone.
INLINE_DISTINCT = 64

# Taking as many accented characters apart, to compare what is said, takes milliseconds.
INLINE_CHARACTERS = 20_000


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
    `question`: where no answer is drawn, the vector of what is asked, None where nothing compares it.
    """

    command: ScoreCommand
    chosen: Calibration | None
    generation: Generation
    marks: Stopwatch
    question: Embedded | None = None


class LiveLoad:
    """How many live scores are under way: scoring counts them, jobs give way to them."""

    def __init__(self) -> None:
        self.under_way = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one score for as long as it takes."""
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1


class Scorer:
    """Scores prompts. `live` counts the scores under way: other work gives way to them.

    `ood_abstain`: whether decisions abstain on prompts unlike the rows of their calibration. `default`: what
    serves where no calibration fits; None: raw values do. `claims`: scores long answers claim by claim, too.
    `spans`: what traces the work.
    """

    def __init__(
        self,
        llm: LanguageModel,
        embedder: Embedder,
        calibrations: SqlCalibrations,
        *,
        live: LiveLoad | None = None,
        ood_abstain: bool = True,
        default: DefaultCalibration | None = None,
        claims: ClaimScorer | None = None,
        spans: Spans = NO_SPANS,
    ) -> None:
        self._llm = llm
        self._embedder = embedder
        self._calibrations = calibrations
        self._live = live or LiveLoad()
        self._ood_abstain = ood_abstain
        self._default = default
        self._claims = claims or ClaimScorer()
        self._spans = spans

    @property
    def empty_answers(self) -> EmptyAnswers:
        """Return what an answer without text is."""
        return self._embedder.empty_answers

    async def score(self, command: ScoreCommand) -> Score:
        """Return the score of a prompt or of supplied samples.

        One answer takes a calibration by evidence that fits: without, its spectrum is 1, whatever it says.
        Raises TooFewSamples when fewer are asked for or supplied than that; DeadlineExceeded or
        LLMBadResponse when fewer came, NoUsableAnswers when fewer held a text; InvalidRequest for a blank
        candidate, unless that means something; NotFound for an unknown calibration; and what the LLM and the
        embedder raise.
        """
        with self._live.one():
            return await self._judged(await self._drawn(command))

    async def draw(self, command: ScoreCommand) -> Drawn:
        """Return the answers that a score rests on, to be scored by `finish`; raises as `score` does.

        For a caller whose candidate is still being written: drawing need not wait for it.
        """
        with self._live.one():
            return await self._drawn(command)

    async def finish(self, drawn: Drawn, candidate: str | None) -> Score:
        """Return the score of answers drawn before, with a text to judge by them; raises as `score` does."""
        self._refuse_blank(candidate)
        drawn.marks.resume()
        with self._live.one():
            return await self._judged(replace(drawn, command=replace(drawn.command, candidate=candidate)))

    def recommended(self, command: ScoreCommand, chosen: Calibration | None = None) -> int | None:
        """Return how many answers the calibration recommends that would be applied; None where none does.

        chosen: the calibration that the command names, where it is none of the active ones. Raises
        EmbedderUnavailable.
        """
        named = {one.id: one for one in self._calibrations.any_active()}
        chosen = chosen or named.get(command.calibration)
        if command.generation is None or (chosen is None and command.calibration != "active"):
            return None
        calibration, _ = self._fitting(command, chosen, self._undrawn(command.generation))
        return None if calibration is None else calibration.recommended

    async def _drawn(self, command: ScoreCommand) -> Drawn:
        """Return the answers. The question is embedded meanwhile: the LLM takes longer."""
        self._refuse_blank(command.candidate)
        marks = Stopwatch(command.arrived)
        chosen = await self._named_calibration(command.calibration)
        if command.as_recommended:
            command = self._as_recommended(command, chosen)
        marks.lap("queue")
        if command.draws_none:
            return await self._undrawn_of(command, chosen, marks)
        question, embedding = self._question(command, chosen), None
        if question is not None and command.generation is not None:
            embedding = asyncio.ensure_future(self._embedder.embed([question]))
        try:
            generation = await self._draw(command, chosen)
            marks.lap("generate")
            marks.move("generate", "queue", generation.queued_s)
            return Drawn(command, chosen, generation, marks)
        finally:
            if embedding is not None:
                # A batch that is being embedded goes on. What it raised, the call for all texts meets again.
                embedding.cancel()
                await asyncio.gather(embedding, return_exceptions=True)

    def _as_recommended(self, command: ScoreCommand, chosen: Calibration | None) -> ScoreCommand:
        number, judged_alone = self.recommended(command, chosen), command.candidate_logprob is not None
        if command.generation is None or number is None or (number == 0 and not judged_alone):
            return command
        return replace(command, generation=replace(command.generation, num_samples=number))

    def _undrawn(self, request: GenerationRequest) -> Generation:
        """Return no answers, as those that would have been drawn."""
        return Generation((), 0, "", omitted=self._llm.identity(request).omitted)

    async def _undrawn_of(self, command: ScoreCommand, chosen: Calibration | None, marks: Stopwatch) -> Drawn:
        assert command.generation is not None
        undrawn, about = self._undrawn(command.generation), None
        try:
            made_by = self._embedder.identity
        except EmbedderUnavailable:
            await self._embedder.check()  # a server that came late is known once it has answered
            made_by = self._embedder.identity
        calibration, *_ = self._serving_alone(command, chosen, undrawn, made_by)
        of_claims, _ = self._fitting(command, chosen, undrawn, made_by, unit="claim")
        references = [one.reference for one in (calibration, of_claims) if one is not None]
        compared = any(one is not None and len(one.questions) for one in references)
        if command.question is not None and compared:
            about = await self._embed([command.question], command, marks)
        marks.lap("embed")
        return Drawn(command, chosen, undrawn, marks, about)

    def _fitting(
        self,
        command: ScoreCommand,
        chosen: Calibration | None,
        generation: Generation,
        made_by: EmbedderIdentity | None = None,
        unit: Unit = "answer",
    ) -> tuple[Calibration | None, list[ScoreWarning]]:
        """Return the calibration that fits where no answer was drawn."""
        if command.calibration == "none" or command.generation is None:
            return None, []
        wanted = replace(self.fingerprint(command, generation, made_by), unit=unit)
        answered = self._llm.identity(command.generation).answered
        return fitting(wanted, chosen, self._calibrations, answered=answered, model=generation.model)

    def _serving_alone(
        self,
        command: ScoreCommand,
        chosen: Calibration | None,
        generation: Generation,
        made_by: EmbedderIdentity,
    ) -> tuple[Calibration | None, DefaultCalibration | None, list[ScoreWarning]]:
        """Return what serves where no answer was drawn: what fits, else the default, told with it, if any."""
        calibration, warnings = self._fitting(command, chosen, generation, made_by)
        if calibration is not None or self._default is None or command.calibration == "none":
            return calibration, None, warnings
        mismatch = [one for one in warnings if one.code == "calibration_mismatch"]
        return self._default.under(made_by), self._default, [*mismatch, RANKED_BY_DEFAULT]

    async def _judged_alone(self, drawn: Drawn) -> Score:
        """Return the score of a candidate by its own log-probability: no answer was drawn."""
        command, marks = drawn.command, drawn.marks
        candidate, log_probability = command.candidate, command.candidate_logprob
        assert candidate is not None and log_probability is not None
        made_by = self._embedder.identity if drawn.question is None else drawn.question.made_by
        calibration, default, warnings = self._serving_alone(command, drawn.chosen, drawn.generation, made_by)
        question = None if drawn.question is None else drawn.question.vectors[0]
        p_value = ood_p_value(calibration, question)
        ood_warnings = out_of_distribution(p_value)
        judgement, about = await _maybe_in_thread(
            calibration is not None and command.target is not None,
            judge_alone,
            calibration,
            candidate.strip(),
            log_probability,
            command.target,
            by_default=default is not None,
            unlike=bool(ood_warnings) and self._ood_abstain,
        )
        rank = None
        if default is not None:
            rank = rank_alone(default, candidate.strip(), log_probability, made_by.dimension)
        claims, said = None, await self._claims.read(command, [], candidate.strip(), 0)
        if said is not None:
            own, _ = self._fitting(command, drawn.chosen, drawn.generation, made_by, unit="claim")
            ood = out_of_distribution(ood_p_value(own, question))
            unlike = bool(ood) and self._ood_abstain
            claims = await asyncio.to_thread(
                self._claims.scores_alone, command, said, candidate.strip(), own, unlike=unlike
            )
            about += [*claims.warnings, *(ood if not ood_warnings else ())]
        marks.lap("spectrum")
        every = [*warnings, *ood_warnings, *about]
        used = None
        if calibration is not None:
            used = calibration_used_alone(calibration, "own" if default is None else "default")
        return compose(drawn, None, used, judgement, rank, every, made_by, p_value, claims)

    async def _judged(self, drawn: Drawn) -> Score:
        if drawn.command.draws_none:
            return await self._judged_alone(drawn)
        command, chosen, generation, marks = drawn.command, drawn.chosen, drawn.generation, drawn.marks
        texts, index = distinct([draw.text for draw in generation.draws])
        candidate = None if command.candidate is None else command.candidate.strip()
        to_embed = texts_to_embed(with_candidate(texts, candidate), self.empty_answers)
        question = self._question(command, chosen)
        said = await self._claims.read(command, texts, candidate, len(index))
        beside = [*([] if question is None else [question]), *(said.to_embed() if said else [])]
        every_text = list(dict.fromkeys([*to_embed, *beside]))
        embedded = await self._embed(every_text, command, marks)
        # A candidate that is none of the answers comes after them, and stays out of their spectrum.
        num_embedded = len(texts_to_embed(texts, self.empty_answers))
        vectors = outcome_vectors(texts, embedded.vectors[:num_embedded])
        marks.lap("embed")
        counts = np.bincount(index, minlength=len(texts))
        dimension = embedded.made_by.dimension
        many = len(texts) > INLINE_DISTINCT
        with self._spans.spectrum(len(texts)):
            spectrum_ = await _maybe_in_thread(many, spectrum, vectors, counts, dimension=dimension)
        alike = await _maybe_in_thread(_is_expensive(texts), num_indistinct, texts, vectors)
        evidence = evidence_of(generation.draws, index)
        applied, warnings = self._applied(command, chosen, generation, embedded.made_by, evidence)
        basis = basis_of(
            generation,
            texts,
            candidate,
            embedded.vectors[: len(to_embed)],
            spectrum_,
            counts,
            applied,
            evidence,
        )
        about = None if question is None else embedded.vectors[every_text.index(question)]
        p_value = ood_p_value(applied.calibration if applied else None, about, generation.draws)
        ood_warnings = out_of_distribution(p_value)
        # A decision's first bounds import scipy, which takes half a second.
        decides = command.target is not None and applied is not None and applied.calibration.selectors
        slow = decides or _is_expensive([candidate or ""])
        judgement, about_texts = await _maybe_in_thread(
            slow, judge, basis, command.target, unlike=bool(ood_warnings) and self._ood_abstain
        )
        claims = None
        if said is not None:
            vector_of = dict(zip(every_text, embedded.vectors, strict=True))
            judged = basis.answer if candidate is None else candidate
            claims, ood = await self._claim_scores(
                drawn, said, judged, [texts[i] for i in index], vector_of, embedded.made_by, about
            )
            about_texts += [*claims.warnings, *(ood if not ood_warnings else ())]
        marks.lap("spectrum")
        about_answers = [*partial_warning(generation), *truncated_warning(generation, command)]
        about_answers += indistinct_warning(alike, len(texts))
        every = [*about_answers, *warnings, *ood_warnings, *about_texts]
        used = None if applied is None else calibration_used(applied)
        rank, made_by = rank_score(basis), embedded.made_by
        return compose(drawn, basis, used, judgement, rank, every, made_by, p_value, claims)

    async def _claim_scores(
        self,
        drawn: Drawn,
        said: Said,
        judged: str,
        texts: list[str],
        vectors: Mapping[str, NDArray[np.float32]],
        made_by: EmbedderIdentity,
        question: NDArray[np.float32] | None,
    ) -> tuple[ClaimScores, list[ScoreWarning]]:
        """Return the claims of the judged text by the m answers drawn, and a warning of an unlike question.

        question: its vector (d,), None where nothing compares it.
        """
        command, generation = drawn.command, drawn.generation
        is_drawn = command.candidate is None or command.candidate_is_drawn
        if is_drawn and judged in texts and len(texts) > MIN_SAMPLES:
            texts.remove(judged)  # it says what it claims itself
        own = None
        if not said.is_json(judged):
            own = self._of_claims(command, drawn.chosen, generation, made_by)
        applied = self._claims.applied(command, own, len(texts), made_by)
        p_value = ood_p_value(applied.calibration if applied else None, question, generation.draws)
        ood = out_of_distribution(p_value)
        unlike = bool(ood) and self._ood_abstain
        work = partial(self._claims.scores, command, said, judged, texts, vectors, made_by.dimension, applied)
        found = await asyncio.to_thread(work, unlike=unlike)
        if own is not None and len(texts) > own.num_samples:
            found = replace(found, warnings=[*found.warnings, _mismatch(own, ["num_samples"])])
        return found, ood

    def _of_claims(
        self,
        command: ScoreCommand,
        chosen: Calibration | None,
        generation: Generation,
        made_by: EmbedderIdentity,
    ) -> Calibration | None:
        """Return the calibration of claims that fits."""
        if command.calibration == "none":
            return None
        wanted = replace(self.fingerprint(command, generation, made_by), unit="claim")
        named = chosen if chosen is not None and chosen.fingerprint.unit == "claim" else None
        fits = named or self._calibrations.active(wanted.key())
        return None if fits is None or fits.fingerprint.differs(wanted) else fits

    def _refuse_blank(self, candidate: str | None) -> None:
        if self.empty_answers == FAILED and candidate is not None and is_blank(candidate):
            msg = "must not be blank: a text is judged by it (or set EIGENCAL_EMPTY_ANSWERS)"
            raise InvalidRequest(f"candidate: {msg}", [{"loc": ["body", "candidate"], "msg": msg}])

    async def _named_calibration(self, choice: str) -> Calibration | None:
        """Look an explicitly named calibration up before the LLM is put to work."""
        if choice in ("active", "none"):
            return None
        calibration = await self._calibrations.get(choice)
        if calibration is None:
            raise NotFound("No calibration has the id given in `calibration`.")
        return calibration

    async def _draw(self, command: ScoreCommand, chosen: Calibration | None) -> Generation:
        if command.num_samples < MIN_SAMPLES and not self._one_may_do(command, chosen):
            raise TooFewSamples(TOO_FEW)
        if command.generation is None:
            draws = supplied_draws(command.samples or (), command.logprobs)
            came = Generation(draws, requested=len(draws), model="")
        else:
            asked = in_time(command.generation, command.arrived)
            with self._spans.generation(asked, self._llm.identity) as span:
                came = await self._llm.generate(asked)
                span.tell(came)
        draws = usable(came.draws, self.empty_answers)
        generation = replace(came, draws=draws, num_empty=len(came.draws) - len(draws))
        count = len(draws)
        if count == 0 or (count < MIN_SAMPLES and not self._one_may_do(command, chosen)):
            raise too_few(generation, command.generation)
        return generation

    def _one_may_do(self, command: ScoreCommand, chosen: Calibration | None) -> bool:
        """Tell whether a calibration by evidence may serve a single answer to a request."""
        if command.calibration == "none" or command.num_samples < 1:
            return False
        if self._default is not None:
            return True
        wanted = self.fingerprint(command)
        # Before the first answer parts that only answers tell are open: else it could never be drawn.
        answered = command.generation is None or self._llm.identity(command.generation).answered
        every = [chosen] if chosen else self._calibrations.any_active()
        prints = [one.fingerprint for one in every if one.evidence]
        return any(not one.differs(wanted if answered else wanted.drawn_as(one)) for one in prints)

    def _question(self, command: ScoreCommand, chosen: Calibration | None) -> str | None:
        """Return the text of what is asked, where a calibration that may be applied compares it with others.

        Which one is applied is known only once the answers are.
        """
        if command.calibration == "none":
            return None
        every = [chosen] if chosen else self._calibrations.any_active()
        compared = any(one.reference is not None and len(one.reference.questions) for one in every)
        return command.question if compared or self._default_compares() else None

    def _default_compares(self) -> bool:
        if self._default is None:
            return False
        try:
            return self._default.compares(self._embedder.identity)
        except EmbedderUnavailable:  # not known before it has embedded something
            return True

    async def _embed(self, texts: Sequence[str], command: ScoreCommand, marks: Stopwatch) -> Embedded:
        """Embed in the time that the deadline leaves: under load the embedder may take minutes."""
        deadline_s = command.generation.deadline_s if command.generation else None
        left_s = None if deadline_s is None else max(deadline_s + LATE_S - marks.elapsed_s(), 0.0)
        try:
            with self._spans.embedding() as span:
                async with asyncio.timeout(left_s):
                    embedded = await self._embedder.embed(texts)
                span.tell(embedded)
                return embedded
        except TimeoutError:
            raise DeadlineExceeded(
                "The answers came before the deadline, but could not be embedded in time."
            ) from None

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
        evidence: Evidence | None,
    ) -> tuple[Applied | None, list[ScoreWarning]]:
        """Return the calibration that serves, and what to know about it.

        A named one is held to the same test as the active one: it is never applied where it does not fit.
        Where none fits the default serves, if there is one. One by evidence serves answers without
        log-probabilities by its plain parameters.
        """
        if command.calibration == "none":
            return None, []
        # Only now: which model answered is known only once it has.
        wanted, count = self.fingerprint(command, generation, made_by), len(generation.draws)
        candidate, differs = chosen or self._calibrations.active(wanted.key()), list[str]()
        if candidate is not None and not (differs := candidate.fingerprint.differs(wanted)):
            applied = _applied_to(candidate, count, evidence)
            if applied is not None:
                lacking = applied.evidence is None and bool(candidate.evidence)
                return applied, [NO_EVIDENCE] if lacking else []
            differs = ["num_samples"]
        active = [one for one in self._calibrations.any_active() if one.fingerprint.unit == wanted.unit]
        if candidate is None and active:
            candidate = min(active, key=lambda one: len(one.fingerprint.differs(wanted)))
            differs = candidate.fingerprint.differs(wanted)
        mismatch = [] if candidate is None else [_mismatch(candidate, differs)]
        default = self._default
        applied = None if default is None else _applied_to(default.under(made_by), count, evidence)
        if applied is not None:
            return replace(applied, default=default), [*mismatch, BY_DEFAULT]
        if count < MIN_SAMPLES:
            # Another model answered than expected, or it told no log-probability.
            raise too_few(generation, command.generation)
        return None, mismatch or [NO_CALIBRATION]


def _is_expensive(texts: Sequence[str]) -> bool:
    """Tell whether comparing the texts would hold the event loop up."""
    return len(texts) > INLINE_DISTINCT or sum(map(len, texts)) > INLINE_CHARACTERS


async def _maybe_in_thread(slow: object, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what the work makes: in a thread if it is slow, here if a thread would cost more."""
    return await asyncio.to_thread(work, *args, **kwargs) if slow else work(*args, **kwargs)


def compose(
    drawn: Drawn,
    basis: Basis | None,
    calibration: CalibrationUsed | None,
    judgement: Judgement,
    rank: float | None,
    warnings: list[ScoreWarning],
    made_by: EmbedderIdentity,
    ood_p_value: float | None,
    claims: ClaimScores | None,
) -> Score:
    """Return the score. basis: None where no answer was drawn; rank: its `rank_score`."""
    generation, laps = drawn.generation, drawn.marks.total()
    if drawn.command.generation is None:
        del laps["generate"]
    texts = [draw.text for draw in generation.draws]
    told: dict[str, Any] = {}
    if claims is not None:
        told = {
            "claims": claims.claims,
            "claims_share": claims.share,
            "probability_all_correct": claims.all_correct,
            "claims_calibration": claims.calibration,
        }
    if basis is None:
        answer, calibrated = (drawn.command.candidate or "").strip(), judgement.no_model is None
    else:
        answer, calibrated = basis.answer, basis.applied is not None and basis.applied.default is None
    score = Score.model_construct(
        id=new_id("scr"),
        answer=answer,
        probability_correct=judgement.probability_correct,
        rank_score=rank,
        candidate=judgement.candidate,
        decision=judgement.decision,
        calibrated=calibrated,
        calibration=calibration,
        ood_p_value=ood_p_value,
        warnings=warnings,
        model=generation.model or None,
        embedder=made_by.name,
        num_samples=len(texts),
        num_truncated=sum(draw.truncated for draw in generation.draws),
        num_empty=generation.num_empty + sum(not text for text in texts),
        samples=texts,
        timings_ms=Timings.model_construct(
            None, **{stage: round(seconds * 1000, 3) for stage, seconds in laps.items()}
        ),
        **_values(basis),
        **told,
    )
    score._judgement = judgement
    return score


def _values(basis: Basis | None) -> dict[str, Any]:
    """Return what a score tells of the answers drawn and their spectrum."""
    if basis is None:
        of_spectrum = ("lambda_max", "entropy", "entropy_normalized", "uncalibrated", "spectrum")
        return dict.fromkeys((*of_spectrum, "evidence", "usage")) | {"num_distinct": 0, "modes": []}
    generation, served, raw = basis.generation, basis.served, basis.raw
    usage = TokenUsage.model_construct(
        prompt_tokens=generation.usage.prompt_tokens, completion_tokens=generation.usage.completion_tokens
    )
    return {
        "lambda_max": served.lambda_max,
        "entropy": served.entropy,
        "entropy_normalized": served.entropy_normalized(len(generation.draws)),
        "uncalibrated": SpectrumValues.model_construct(lambda_max=raw.lambda_max, entropy=raw.entropy),
        "evidence": basis.evidence,
        "num_distinct": len(basis.texts),
        "modes": list(basis.modes),
        "spectrum": FullSpectrum.model_construct(
            eigenvalues=served.eigenvalues.tolist(),
            null_value=served.null_value,
            null_count=served.null_count,
            uncalibrated=raw.eigenvalues.tolist(),
        ),
        "usage": usage if generation.model else None,
    }
