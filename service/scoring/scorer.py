"""Scoring: draw samples, embed them, compute the spectrum, apply a calibration and judge a text."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import Calibration
from service.calibration.default import DefaultCalibration
from service.calibration.store import SqlCalibrations
from service.claims.comparison import Compare, Comparer, Comparison, compared_by
from service.claims.kernel import (
    compared_texts,
    kernel_matrix,
    read_texts,
    realize,
    realize_first,
    with_comparison,
)
from service.embedding.port import (
    FACTS,
    PAPER,
    Embedded,
    Embedder,
    EmbedderIdentity,
    distinct,
    supplied_draws,
    usable,
    with_candidate,
)
from service.errors import (
    DeadlineExceeded,
    EigencalError,
    EmbedderUnavailable,
    InvalidRequest,
    NoUsableAnswers,
    TooFewSamples,
)
from service.ids import new_id
from service.llm.ask import NO_REPLY, Asker
from service.llm.openai_server import HttpLanguageModel
from service.llm.port import Generation, GenerationRequest, Priority, Usage, is_blank
from service.scoring.choice import (
    CalibrationChoice,
    ServedCalibration,
    applied_to,
    mismatch,
    ood_p_value,
)
from service.scoring.claims import AnswerClaims, ClaimScorer, ClaimScores
from service.scoring.judging import (
    DEFAULT_PROBABILITY,
    DEFAULT_WITHOUT_SAMPLES,
    Observation,
    evidence_of,
    find_refusals,
    judge,
    of_candidate,
    sample_warnings,
    without_refusals,
)
from service.scoring.score import (
    Evidence,
    Judgement,
    Score,
    ScoreCommand,
    ScoreWarning,
    SpectrumValues,
    Timings,
    TokenUsage,
    warning,
)
from service.sharing import Threads
from service.spectral.spectrum import spectrum

MIN_SAMPLES = 2
TOO_FEW = (
    "A score needs two answers. One is enough if it has a log-probability and a calibration by evidence fits "
    "the request."
)

MAX_COMPARE_S = 30.0


@asynccontextmanager
async def in_time(command: ScoreCommand) -> AsyncIterator[None]:
    """Raise DeadlineExceeded in the context if it takes longer than the command's deadline."""
    deadline_s = command.generation.deadline_s if command.generation else None
    if deadline_s is None:
        yield
        return
    elapsed_s = 0.0 if command.arrived is None else time.perf_counter() - command.arrived
    try:
        async with asyncio.timeout(deadline_s - elapsed_s):
            yield
    except TimeoutError:
        raise DeadlineExceeded("The score was not ready before the deadline.") from None


def too_few(generation: Generation, request: GenerationRequest | None) -> EigencalError:
    """Return the error for no usable answer, or for a single one that no calibration by evidence fits."""
    empty = generation.num_empty
    drawn = len(generation.draws) + empty
    if request is None and empty:
        return TooFewSamples(f"{empty} of {drawn} samples are empty and do not count. {TOO_FEW}")
    if request is not None and empty:
        return NoUsableAnswers(
            f"{empty} of {drawn} drawn answers have no text (only reasoning, a tool call, or nothing). A "
            f"score needs two answers. The limit is {request.sampling.max_tokens} tokens per answer. Raise "
            "it for reasoning models (EIGENCAL_MAX_TOKENS or `sampling.max_tokens`)."
        )
    return TooFewSamples(TOO_FEW)


P = ParamSpec("P")
T = TypeVar("T")

# Work on more distinct answers, or on more characters, takes milliseconds and runs in a thread.
INLINE_DISTINCT = 64
INLINE_CHARACTERS = 4_000


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Samples to be scored, and the command that asked for them.

    `chosen`: the calibration that the command names by id, else None. `seconds`: elapsed time by stage.
    """

    command: ScoreCommand
    chosen: Calibration | None
    generation: Generation
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """The samples with their embeddings and, if requested, the LLM's verdicts on pairs.

    drawn: includes the time and tokens of this step. texts: the distinct answers; index: (m,) position in
    `texts` of each answer. question, answer_claims: the question and sentences embedded too; None where none
    are. compared: the text of each answer and of the candidate that is embedded; vectors: (d,) by text.
    embedder: that made them; made_by: what decides the kernel of the answers. comparison: by the LLM.
    """

    drawn: Samples
    texts: Sequence[str]
    index: NDArray[np.int_]
    candidate: str | None
    question: str | None
    answer_claims: AnswerClaims | None
    compared: Sequence[str]
    vectors: Mapping[str, NDArray[np.float32]]
    embedder: EmbedderIdentity
    made_by: EmbedderIdentity
    comparison: Comparison | None
    warnings: Sequence[ScoreWarning]


@dataclass(frozen=True, slots=True, eq=False)
class _Judged:
    """The judgement of a score, without its claims."""

    observation: Observation
    judgement: Judgement
    ood_p_value: float | None
    warnings: Sequence[ScoreWarning]


class LiveLoad:
    """Number of live scores that are running. Jobs yield to them."""

    def __init__(self) -> None:
        self.under_way = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one score while the context is open."""
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1


class Scorer:
    """Scores prompts. `live` counts the running scores, to which other work yields.

    `default`: used if no calibration fits; None: values stay raw. `claims`: scores long answers by claim.
    `compare`: how answers are compared if a request does not specify it. `threads`: for work that would block
    the event loop.
    """

    def __init__(
        self,
        llm: HttpLanguageModel,
        embedder: Embedder,
        calibrations: SqlCalibrations,
        *,
        live: LiveLoad | None = None,
        default: DefaultCalibration | None = None,
        claims: ClaimScorer | None = None,
        compare: Compare = "embeddings",
        asker: Asker | None = None,
        threads: Threads | None = None,
    ) -> None:
        self._llm = llm
        self._embedder = embedder
        self._asker = asker or Asker(llm)
        self._comparer = Comparer(self._asker)
        self.choice = CalibrationChoice(llm, embedder, calibrations, default, compare)
        self._live = live or LiveLoad()
        self._threads = threads or Threads("scores")
        self._claims = claims or ClaimScorer(threads=self._threads)

    async def score(self, command: ScoreCommand) -> Score:
        """Return the score of a prompt or of supplied samples.

        A score needs two answers, or one if a calibration by evidence fits: the spectrum of one answer is
        always 1. With `num_samples` 0 it needs none. Raises TooFewSamples if fewer are requested or supplied;
        NoUsableAnswers if fewer had text; DeadlineExceeded; InvalidRequest for a blank candidate; NotFound
        for an unknown calibration; and the errors of the LLM and the embedder.
        """
        async with in_time(command):
            with self._live.one():
                return await self._scored(await self._drawn(command))

    async def draw(self, command: ScoreCommand) -> Samples:
        """Return the samples of a score, to be scored by `finish`. Raises like `score`.

        For callers that do not have the candidate yet: neither drawing nor comparing need wait for it.
        """
        with self._live.one():
            drawn = await self._drawn(command)
            if not self.choice.is_by_llm(drawn.command):
                return drawn
            texts, index = distinct([draw.text for draw in drawn.generation.draws])
            begun = time.perf_counter()
            comparison, _ = await self._compare(drawn, *_to_compare(texts, index, None))
            seconds = {**drawn.seconds, "compare": time.perf_counter() - begun}
            return replace(drawn, generation=_with_usage(drawn.generation, comparison), seconds=seconds)

    async def finish(self, drawn: Samples, candidate: str | None) -> Score:
        """Return the score of samples from `draw`, with a candidate to judge. Raises like `score`."""
        self._refuse_blank(candidate)
        with self._live.one():
            return await self._scored(replace(drawn, command=replace(drawn.command, candidate=candidate)))

    async def _drawn(self, command: ScoreCommand) -> Samples:
        """Return the samples. Meanwhile the question is embedded and cached: the LLM takes longer."""
        self._refuse_blank(command.candidate)
        begun = time.perf_counter() if command.arrived is None else command.arrived
        chosen = await self.choice.named(command.calibration)
        if command.as_recommended:
            command = self._as_recommended(command, chosen)
        started = time.perf_counter()
        question, embedding = self.choice.question(command, chosen), None
        if command.draws_none:
            assert command.generation is not None
            await self._embed([] if question is None else [question])
            undrawn = Generation((), "", omitted=self._llm.identity(command.generation).omitted)
            seconds = {"queue": started - begun, "embed": time.perf_counter() - started}
            return Samples(command, chosen, undrawn, seconds)
        if question is not None and command.generation is not None:
            embedding = asyncio.ensure_future(self._embedder.embed([question]))
        try:
            generation = await self._draw(command, chosen)
            took, queued = time.perf_counter() - started, generation.queued_s
            seconds = {"queue": started - begun + queued, "generate": max(took - queued, 0.0)}
            if embedding is not None:
                # A cancelled embedding would be repeated. Its errors are raised by the call for all texts.
                await asyncio.wait({embedding})
                seconds["embed"] = time.perf_counter() - started - took
            return Samples(command, chosen, generation, seconds)
        finally:
            if embedding is not None:
                embedding.cancel()
                await asyncio.gather(embedding, return_exceptions=True)

    def _as_recommended(self, command: ScoreCommand, chosen: Calibration | None) -> ScoreCommand:
        number, judged_alone = self.choice.recommended(command, chosen), command.candidate_logprob is not None
        if command.generation is None or number is None or (number == 0 and not judged_alone):
            return command
        return replace(command, generation=replace(command.generation, num_samples=number))

    async def _read(self, drawn: Samples) -> _Read:
        command, begun = drawn.command, time.perf_counter()
        texts, index = distinct([draw.text for draw in drawn.generation.draws])
        candidate = None if command.candidate is None else command.candidate.strip()
        question = self.choice.question(command, drawn.chosen)
        answer_claims = await self._claims.read(command, texts, candidate, len(index))
        by_llm = self.choice.is_by_llm(command)
        to_embed = [] if question is None else [question]
        compared = list[str]()
        if not command.draws_none:
            kernel = FACTS if by_llm else self._embedder.kernel
            known = with_candidate(texts, candidate)
            compared = await self._maybe_in_thread(
                _is_slow(known), compared_texts, known, command.question or "", kernel
            )
            to_embed = [*compared, *to_embed, *(answer_claims.to_embed() if answer_claims else [])]
        to_embed = list(dict.fromkeys(to_embed))
        embedding = self._embed(to_embed)
        comparison, warnings, seconds = None, list[ScoreWarning](), dict(drawn.seconds)
        if by_llm:  # concurrently: they wait for different servers
            comparing = asyncio.ensure_future(self._compare(drawn, *_to_compare(texts, index, candidate)))
            try:
                embedded = await embedding
                all_embedded = time.perf_counter()
                comparison, warnings = await comparing
            finally:
                comparing.cancel()
                await asyncio.gather(comparing, return_exceptions=True)
            drawn = replace(drawn, generation=_with_usage(drawn.generation, comparison))
            seconds["compare"] = seconds.get("compare", 0.0) + time.perf_counter() - all_embedded
            made_by = replace(embedded.made_by, kernel=FACTS)
        else:
            embedded = await embedding
            all_embedded, made_by = time.perf_counter(), embedded.made_by
        if comparison is not None or self.choice.is_judged_alone(command):
            made_by = compared_by(made_by, "" if comparison is None else comparison.model)
        seconds["embed"] = seconds.get("embed", 0.0) + all_embedded - begun
        vectors = dict(zip(to_embed, embedded.vectors, strict=True))
        return _Read(
            replace(drawn, seconds=seconds),
            texts,
            index,
            candidate,
            question,
            answer_claims,
            compared,
            vectors,
            embedded.made_by,
            made_by,
            comparison,
            warnings,
        )

    async def _scored(self, drawn: Samples) -> Score:
        read = await self._read(drawn)
        begun, command, generation = time.perf_counter(), read.drawn.command, read.drawn.generation
        evidence = evidence_of(generation.draws, read.index)
        applied, about = self.choice.serving(command, drawn.chosen, generation, read.made_by, evidence)
        # The first decision imports scipy, which takes half a second.
        decides = command.target is not None and applied is not None and bool(applied.calibration.selectors)
        slow = decides or _is_slow(with_candidate(read.texts, read.candidate))
        judged = await self._maybe_in_thread(slow, self._judged, read, applied, evidence, about)
        claims = None
        if read.answer_claims is not None:
            claims = await self._claim_scores(read, read.answer_claims, judged.observation)
        return compose(read, judged, claims, time.perf_counter() - begun)

    def _judged(
        self,
        read: _Read,
        applied: ServedCalibration | None,
        evidence: Evidence | None,
        about_calibration: Sequence[ScoreWarning],
    ) -> _Judged:
        """Compute the spectrum, and judge the candidate and the leading answer."""
        command, candidate = read.drawn.command, read.candidate
        observation, about_samples = self._observation(read, applied, evidence)
        p_value, distance_warnings = ood_p_value(
            applied, read.question, read.vectors, read.drawn.generation.draws, candidate
        )
        judgement, about = judge(observation, command.target)
        refusals = find_refusals(read.texts, read.index, candidate, command.question)
        judgement = without_refusals(judgement, observation.answer, candidate, refusals, command.target)
        unverified = DEFAULT_PROBABILITY if observation.num_samples else DEFAULT_WITHOUT_SAMPLES
        warnings = [*about_samples, *read.warnings, *about_calibration]
        warnings += [unverified] if judgement.is_unverified else []
        warnings += [*distance_warnings, *about]
        return _Judged(observation, judgement, p_value, warnings)

    def _space(self, read: _Read) -> NDArray[np.floating]:
        """Return the vectors (n, d) of the distinct answers and the candidate for the kernel."""
        question = read.drawn.command.question or ""
        space = np.array([read.vectors[text] for text in read.compared], dtype=np.float32)
        if read.made_by.kernel == PAPER:
            return space
        known = with_candidate(read.texts, read.candidate)
        kernel = kernel_matrix(read_texts(known, read.compared, question, len(read.texts)), space)
        if read.comparison is None:
            return realize(kernel)
        compared = with_comparison(kernel, read.comparison.same)
        return realize_first(compared, len(read.texts))

    async def _compare(
        self, drawn: Samples, texts: Sequence[str], order: Sequence[int]
    ) -> tuple[Comparison | None, list[ScoreWarning]]:
        """Return the LLM's comparisons of the answers; None and a warning if they fail or are late."""
        request = drawn.command.generation
        try:
            comparison = await self._comparer.compare(
                drawn.command.question or "",
                texts,
                order,
                model=None if request is None else request.model,
                priority=Priority.LIVE if request is None else request.priority,
                deadline_s=max(MAX_COMPARE_S - drawn.seconds.get("compare", 0.0), 0.0),
            )
            why = NO_REPLY if comparison.is_silent else ""
        except EigencalError as error:
            why = error.full_detail
        if not why:
            return comparison, []
        message = f"The answers are compared without the LLM. {why}"
        return None, [warning("comparison_missing", message)]

    def _observation(
        self, read: _Read, applied: ServedCalibration | None, evidence: Evidence | None
    ) -> tuple[Observation, list[ScoreWarning]]:
        """Return the observation of the score, and warnings about the samples."""
        texts, index, generation = read.texts, read.index, read.drawn.generation
        command, dimension = read.drawn.command, read.made_by.dimension
        if command.draws_none:
            assert read.candidate is not None and command.candidate_logprob is not None
            return of_candidate(generation, read.candidate, command.candidate_logprob, dimension, applied), []
        if applied is None and len(index) < MIN_SAMPLES:
            # An unexpected model answered, or the answer has no log-probability.
            raise too_few(generation, command.generation)
        space = self._space(read)
        own = space[: len(texts)]  # a candidate that is not among the answers is not part of the spectrum
        found = spectrum(own, np.bincount(index, minlength=len(texts)), dimension=dimension)
        observation = Observation(
            generation,
            texts,
            index,
            read.candidate,
            read.compared,
            space,
            found,
            applied,
            evidence,
        )
        return observation, sample_warnings(observation, command)

    async def _claim_scores(
        self, read: _Read, answer_claims: AnswerClaims, observation: Observation
    ) -> ClaimScores:
        """Return the claims of the judged text."""
        drawn, command, chosen = read.drawn, read.drawn.command, read.drawn.chosen
        judged = observation.answer if read.candidate is None else read.candidate
        texts = [draw.text for draw in drawn.generation.draws]
        if command.candidate is None and judged in texts and len(texts) > MIN_SAMPLES:
            texts.remove(judged)  # the judged text would support its own claims
        matcher = await self._claims.matcher(answer_claims, judged, texts, read.vectors)
        calibration, warnings = None, list[ScoreWarning]()
        if not answer_claims.is_json(judged):
            calibration, about = self.choice.fitting(
                command, chosen, drawn.generation, read.embedder, unit="claim"
            )
            warnings += [warning_ for warning_ in about if warning_.code == "calibration_mismatch"]
        if calibration is not None and command.draws_none and 0 not in calibration.selectors:
            calibration = None
        applied = None if calibration is None else applied_to(calibration, len(texts))
        if calibration is not None and applied is None:
            warnings += [mismatch(calibration, ["num_samples"])]
        _, distance_warnings = await self._maybe_in_thread(
            _is_slow([*read.texts, judged]),
            ood_p_value,
            applied,
            read.question,
            read.vectors,
            drawn.generation.draws,
            judged,
        )
        scores = await self._claims.scores(
            command,
            answer_claims,
            judged,
            texts,
            matcher,
            read.embedder.dimension,
            applied,
        )
        return replace(scores, warnings=[*scores.warnings, *distance_warnings, *warnings])

    async def _maybe_in_thread(
        self, slow: object, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return the result of `work`, computed in a thread if `slow`."""
        return await self._threads.run(work, *args, **kwargs) if slow else work(*args, **kwargs)

    def _refuse_blank(self, candidate: str | None) -> None:
        if candidate is not None and is_blank(candidate):
            msg = "must not be blank"
            raise InvalidRequest(f"candidate: {msg}", [{"loc": ["body", "candidate"], "msg": msg}])

    async def _draw(self, command: ScoreCommand, chosen: Calibration | None) -> Generation:
        if command.num_samples < MIN_SAMPLES and not self.choice.serves_one(command, chosen):
            raise TooFewSamples(TOO_FEW)
        if command.generation is None:
            all_draws = Generation(supplied_draws(command.samples or (), command.logprobs), model="")
        else:
            all_draws = await self._llm.generate(command.generation)
        draws = usable(all_draws.draws)
        generation = replace(all_draws, draws=draws, num_empty=len(all_draws.draws) - len(draws))
        count = len(draws)
        if count == 0 or (count < MIN_SAMPLES and not self.choice.serves_one(command, chosen)):
            raise too_few(generation, command.generation)
        return generation

    async def _embed(self, texts: Sequence[str]) -> Embedded:
        """Embed the texts. With no text to embed, the embedder's identity may first need a health check."""
        if not texts:
            with suppress(EmbedderUnavailable):
                return await self._embedder.embed(texts)
            await self._embedder.check()
        return await self._embedder.embed(texts)


def _to_compare(
    texts: Sequence[str], index: Sequence[int] | NDArray[np.int_], candidate: str | None
) -> tuple[list[str], list[int]]:
    """Return the distinct answers and the candidate, and the order in which they are compared.

    The candidate is first. The answers follow, the more frequent first.
    """
    known, counts = with_candidate(texts, candidate), np.bincount(index, minlength=len(texts))
    order = np.argsort(-counts, kind="stable").tolist()
    if candidate is not None:
        order.insert(0, known.index(candidate))
    return known, order


def _with_usage(generation: Generation, comparison: Comparison | None) -> Generation:
    """Return the answers, with the tokens of their comparison added to their own."""
    if comparison is None:
        return generation
    drawing, comparing = generation.usage, comparison.usage
    usage = Usage(
        drawing.prompt_tokens + comparing.prompt_tokens,
        drawing.completion_tokens + comparing.completion_tokens,
    )
    return replace(generation, usage=usage)


def _is_slow(texts: Sequence[str]) -> bool:
    """Return True if work on the texts would block the event loop."""
    return len(texts) > INLINE_DISTINCT or sum(map(len, texts)) > INLINE_CHARACTERS


def compose(read: _Read, judged: _Judged, claims: ClaimScores | None, judged_s: float) -> Score:
    """Return the score. judged_s: time after embedding, in seconds."""
    command, generation = read.drawn.command, read.drawn.generation
    observation, judgement = judged.observation, judged.judgement
    applied, warnings = observation.applied, [*judged.warnings]
    seconds = {**read.drawn.seconds, "spectrum": judged_s}
    laps = {stage: round(1000 * took, 3) for stage, took in seconds.items()}
    if command.generation is None:
        laps.pop("generate", None)
    texts = [draw.text for draw in generation.draws]
    claim_fields: dict[str, Any] = {}
    if claims is not None:
        known = {warning_.code for warning_ in warnings}
        warnings += [warning_ for warning_ in claims.warnings if warning_.code not in known]
        claim_fields = {
            "claims": claims.claims,
            "claims_calibration": claims.calibration,
        }
    if observation.num_samples:
        calibrated = applied is not None and applied.default is None
    else:
        calibrated = judgement.unavailable_reason is None
    score = Score.model_construct(
        id=new_id("scr"),
        answer=observation.answer,
        probability_correct=judgement.probability_correct,
        candidate=judgement.candidate,
        rank_score=judgement.decisive if applied is not None and applied.default is not None else None,
        decision=judgement.decision,
        calibrated=calibrated,
        calibration=None if applied is None else applied.used,
        ood_p_value=judged.ood_p_value,
        warnings=warnings,
        model=generation.model or None,
        embedder=read.made_by.name,
        kernel=read.made_by.kernel,
        num_samples=len(texts),
        num_refusals=judgement.num_refusals,
        num_truncated=sum(draw.truncated for draw in generation.draws),
        num_empty=generation.num_empty,
        samples=texts,
        timings_ms=Timings.model_construct(None, **laps, total=round(1000 * sum(seconds.values()), 3)),
        **_values(observation, generation),
        **claim_fields,
    )
    score._judgement = judgement
    return score


def _values(observation: Observation, generation: Generation) -> dict[str, Any]:
    """Return the fields of a score that describe the samples and their spectrum."""
    if not observation.num_samples:
        of_spectrum = ("lambda_max", "entropy", "entropy_normalized", "uncalibrated")
        return dict.fromkeys((*of_spectrum, "evidence", "usage")) | {"num_distinct": 0, "modes": []}
    served, raw = observation.served, observation.raw
    usage = TokenUsage.model_construct(
        prompt_tokens=generation.usage.prompt_tokens, completion_tokens=generation.usage.completion_tokens
    )
    return {
        "lambda_max": served.lambda_max,
        "entropy": served.entropy,
        "entropy_normalized": served.entropy_normalized(len(generation.draws)),
        "uncalibrated": SpectrumValues.model_construct(lambda_max=raw.lambda_max, entropy=raw.entropy),
        "evidence": observation.evidence,
        "num_distinct": len(observation.texts),
        "modes": list(observation.modes),
        "usage": usage if generation.model or generation.usage != Usage() else None,
    }
