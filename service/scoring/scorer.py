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
from service.llm.ask import NO_REPLY, Asker, checked_by, is_correct
from service.llm.client import LLM
from service.llm.prompt import GenerationRequest, Priority
from service.llm.samples import Generation, Usage, is_blank
from service.scoring.choice import (
    CalibrationChoice,
    ServedCalibration,
    applied_to,
    mismatch,
    ood_p_value,
)
from service.scoring.claims import AnswerClaims, ClaimScorer, ClaimScores
from service.scoring.judging import (
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
MAX_CHECK_S = 24.0
CHECK_SHARE = 0.8  # of the time left before the deadline, so that a slow self-check does not fail the score


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


@dataclass(frozen=True, slots=True)
class Checked:
    """The self-checks of texts.

    p_true: P(True) of each text in [0, 1], None if unknown; empty if it was not asked for. by: see
    `Fingerprint.self_check`; "" if unknown. usage: tokens of the calls. is_asked: the LLM was asked.
    warnings: why P(True) is unknown although it was asked for.
    """

    p_true: Sequence[float | None] = ()
    by: str = ""
    usage: Usage = field(default_factory=Usage)
    is_asked: bool = False
    warnings: Sequence[ScoreWarning] = ()

    @property
    def only(self) -> float | None:
        """P(True) of the only text."""
        return self.p_true[0] if self.p_true else None


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

    `claims`: scores long answers by claim. `compare`: how answers are compared, and `self_check`: whether the
    LLM checks the judged text, if a request does not specify it. `threads`: for work that would block the
    event loop.
    """

    def __init__(
        self,
        llm: LLM,
        embedder: Embedder,
        calibrations: SqlCalibrations,
        *,
        live: LiveLoad | None = None,
        claims: ClaimScorer | None = None,
        compare: Compare = "embeddings",
        self_check: bool = True,
        asker: Asker | None = None,
        threads: Threads | None = None,
    ) -> None:
        self._llm = llm
        self._embedder = embedder
        self._asker = asker or Asker(llm)
        self._comparer = Comparer(self._asker)
        self._self_check = self_check
        self.choice = CalibrationChoice(llm, embedder, calibrations, compare)
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
        async with in_time(command), self._checking(command) as checking:
            with self._live.one():
                return await self._scored(await self._drawn(command), checking)

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
            if comparison is None:
                return replace(drawn, seconds=seconds)
            generation = _with_usage(drawn.generation, comparison.usage)
            return replace(drawn, generation=generation, seconds=seconds)

    async def finish(self, drawn: Samples, candidate: str | None) -> Score:
        """Return the score of samples from `draw`, with a candidate to judge. Raises like `score`."""
        self._refuse_blank(candidate)
        command = replace(drawn.command, candidate=candidate)
        async with self._checking(command) as checking:
            with self._live.one():
                return await self._scored(replace(drawn, command=command), checking)

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
            if comparison is not None:
                drawn = replace(drawn, generation=_with_usage(drawn.generation, comparison.usage))
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

    @asynccontextmanager
    async def _checking(self, command: ScoreCommand) -> AsyncIterator["asyncio.Task[Checked] | None"]:
        """Yield the self-check of the candidate, which need not wait for the answers; None without one."""
        if command.candidate is None or is_blank(command.candidate) or command.generation is None:
            yield None
            return
        checking = asyncio.ensure_future(self._check(command, [command.candidate.strip()]))
        try:
            yield checking
        finally:
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)

    async def _check(self, command: ScoreCommand, texts: Sequence[str]) -> Checked:
        """Return the self-checks of texts. It never fails: if P(True) is unknown, a warning says why."""
        is_wanted = self._self_check if command.self_check is None else command.self_check
        question, request = command.whole_question, command.generation
        if not is_wanted or not question or not texts:
            return Checked()
        left_s = None if request is None else request.deadline_s
        if left_s is not None and command.arrived is not None:
            left_s -= time.perf_counter() - command.arrived
        try:
            replies = await self._asker.ask(
                [is_correct(question, text) for text in texts],
                model=None if request is None else request.model,
                priority=Priority.LIVE if request is None else request.priority,
                deadline_s=MAX_CHECK_S if left_s is None else min(MAX_CHECK_S, CHECK_SHARE * left_s),
            )
        except EigencalError as error:
            why = error.full_detail
        else:
            if any(p_true is not None for p_true in replies.yes):
                return Checked(replies.yes, checked_by(replies.by), replies.usage, is_asked=True)
            why = NO_REPLY
        message = f"The self-check is missing. {why}"
        return Checked(is_asked=True, warnings=[warning("self_check_missing", message)])

    async def _scored(self, drawn: Samples, checking: "asyncio.Task[Checked] | None") -> Score:
        read = await self._read(drawn)
        begun, command, generation = time.perf_counter(), read.drawn.command, read.drawn.generation
        evidence = evidence_of(generation.draws, read.index)
        applied, about = self.choice.serving(command, drawn.chosen, generation, read.made_by, evidence)
        # The first decision imports scipy, which takes half a second.
        decides = command.target is not None and applied is not None and bool(applied.calibration.selectors)
        slow = decides or _is_slow(with_candidate(read.texts, read.candidate))
        observation, about_samples = await self._maybe_in_thread(
            slow, self._observation, read, applied, evidence
        )
        observed_at = time.perf_counter()
        checked = Checked()
        if checking is not None:
            checked = await checking
        elif (
            command.generation is not None
            or command.self_check
            or (applied is not None and applied.needs_self_check(observation.num_samples))
        ):  # with supplied samples the LLM is called only if need be
            judged_text = observation.answer if read.candidate is None else read.candidate
            checked = await self._check(command, [judged_text])
        checked_s = time.perf_counter() - observed_at
        judged = await self._maybe_in_thread(
            slow, self._judged, read, observation, checked, [*about_samples, *read.warnings, *about]
        )
        claims = None
        if read.answer_claims is not None:
            claims = await self._claim_scores(read, read.answer_claims, judged.observation)
        return compose(read, judged, checked, claims, time.perf_counter() - begun - checked_s, checked_s)

    def _judged(
        self,
        read: _Read,
        observation: Observation,
        checked: Checked,
        about: Sequence[ScoreWarning],
    ) -> _Judged:
        """Judge the candidate and the leading answer. about: warnings so far."""
        command, candidate, applied = read.drawn.command, read.candidate, observation.applied
        observation = replace(observation, p_true=checked.only, checked_by=checked.by)
        p_value, distance_warnings = ood_p_value(
            applied, read.question, read.vectors, read.drawn.generation.draws, candidate
        )
        judgement, about_text = judge(observation, command.target)
        refusals = find_refusals(read.texts, read.index, candidate, command.question)
        judgement = without_refusals(judgement, observation.answer, candidate, refusals, command.target)
        warnings = [*about, *checked.warnings]
        warnings += [*distance_warnings, *about_text]
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
        to_check = self._claims.to_check(answer_claims, judged, texts, applied)
        checked = await self._check(command, to_check)
        needed = None if applied is None else applied.calibration.fingerprint.self_check
        scores = await self._claims.scores(
            command,
            answer_claims,
            judged,
            texts,
            matcher,
            read.embedder.dimension,
            applied,
            checked.p_true if checked.by == needed else (),
        )
        about = [*distance_warnings, *warnings, *checked.warnings]
        return replace(scores, warnings=[*scores.warnings, *about], usage=checked.usage)

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


def _with_usage(generation: Generation, further: Usage) -> Generation:
    """Return the answers, with the tokens of questions about them added to their own."""
    drawing = generation.usage
    usage = Usage(
        drawing.prompt_tokens + further.prompt_tokens,
        drawing.completion_tokens + further.completion_tokens,
    )
    return replace(generation, usage=usage)


def _is_slow(texts: Sequence[str]) -> bool:
    """Return True if work on the texts would block the event loop."""
    return len(texts) > INLINE_DISTINCT or sum(map(len, texts)) > INLINE_CHARACTERS


def compose(
    read: _Read,
    judged: _Judged,
    checked: Checked,
    claims: ClaimScores | None,
    judged_s: float,
    checked_s: float,
) -> Score:
    """Return the score. judged_s: time after embedding without the wait for the self-check, checked_s."""
    command, generation = read.drawn.command, read.drawn.generation
    observation, judgement = judged.observation, judged.judgement
    applied, warnings = observation.applied, [*judged.warnings]
    generation = _with_usage(generation, checked.usage)
    seconds = {**read.drawn.seconds, "spectrum": judged_s}
    if checked.is_asked:
        seconds["self_check"] = checked_s
    laps = {stage: round(1000 * took, 3) for stage, took in seconds.items()}
    if command.generation is None:
        laps.pop("generate", None)
    texts = [draw.text for draw in generation.draws]
    claim_fields: dict[str, Any] = {}
    if claims is not None:
        known = {warning_.code for warning_ in warnings}
        warnings += [warning_ for warning_ in claims.warnings if warning_.code not in known]
        generation = _with_usage(generation, claims.usage)
        claim_fields = {
            "claims": claims.claims,
            "claims_calibration": claims.calibration,
        }
    score = Score.model_construct(
        id=new_id("scr"),
        answer=observation.answer,
        probability_correct=judgement.probability_correct,
        candidate=judgement.candidate,
        self_check=checked.only,
        decision=judgement.decision,
        calibrated=applied is not None and (bool(texts) or judgement.unavailable_reason is None),
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
        usage=_usage(generation),
        **_values(observation, generation),
        **claim_fields,
    )
    score._judgement = judgement
    return score


def _usage(generation: Generation) -> TokenUsage | None:
    """Return the tokens used; None if the LLM was not called."""
    usage = generation.usage
    if usage == Usage() and not (generation.draws and generation.model):
        return None
    return TokenUsage.model_construct(
        prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens
    )


def _values(observation: Observation, generation: Generation) -> dict[str, Any]:
    """Return the fields of a score that describe the samples and their spectrum."""
    if not observation.num_samples:
        of_spectrum = ("lambda_max", "entropy", "entropy_normalized", "uncalibrated")
        return dict.fromkeys((*of_spectrum, "evidence")) | {"num_distinct": 0, "modes": []}
    served, raw = observation.served, observation.raw
    return {
        "lambda_max": served.lambda_max,
        "entropy": served.entropy,
        "entropy_normalized": served.entropy_normalized(len(generation.draws)),
        "uncalibrated": SpectrumValues.model_construct(lambda_max=raw.lambda_max, entropy=raw.entropy),
        "evidence": observation.evidence,
        "num_distinct": len(observation.texts),
        "modes": list(observation.modes),
    }
