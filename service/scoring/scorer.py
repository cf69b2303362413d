"""Score a prompt: draw samples, embed them, compute the spectrum, apply a calibration and judge a text."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import Calibration
from service.calibration.store import SqlCalibrations
from service.claims.comparison import Compare, Comparer, Comparison, compared_by
from service.claims.kernel import kernel_of, read_texts
from service.embedding.port import FACTS, Embedded, Embedder, EmbedderIdentity
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
from service.llm.samples import Generation, Usage, distinct, is_blank, supplied_draws, usable, with_candidate
from service.scoring.choice import (
    CalibrationChoice,
    ServedCalibration,
    applied_to,
    mismatch,
    p_value,
)
from service.scoring.claims import AnswerClaims, ClaimScorer, ClaimScores
from service.scoring.judge import Judgement, judge
from service.scoring.observation import (
    Observation,
    indistinct_answers,
    indistinct_texts,
    observe,
    observe_alone,
)
from service.scoring.score import (
    Score,
    ScoreCommand,
    ScoreWarning,
    SpectrumValues,
    Timings,
    TokenUsage,
    warning,
)
from service.sharing import Threads

MIN_SAMPLES = 2
TOO_FEW = (
    "A score needs two answers. One is enough if it has a log-probability and a calibration by evidence fits "
    "the request."
)

TRUNCATED_SHARE = 0.5  # a score warns from this share of answers cut by max_tokens
NO_TOKENS = Usage()
MAX_COMPARE_S = 30.0
MAX_CHECK_S = 24.0
CHECK_SHARE = 0.8  # of the time left before the deadline, so that a slow self-check does not fail the score


@asynccontextmanager
async def in_time(command: ScoreCommand) -> AsyncIterator[None]:
    """Raise DeadlineExceeded if the block does not end before the command's deadline."""
    try:
        async with asyncio.timeout(_left_s(command)) as limit:
            yield
    except TimeoutError:
        if not limit.expired():  # it is another error
            raise
        raise DeadlineExceeded("The score was not ready before the deadline.") from None


def _left_s(command: ScoreCommand) -> float | None:
    """Return the time until the command's deadline in seconds, None without one."""
    if command.deadline_s is None or command.arrived is None:
        return command.deadline_s
    return command.deadline_s - (time.perf_counter() - command.arrived)


def too_few(generation: Generation, command: ScoreCommand) -> EigencalError:
    """Return the error for too few usable answers."""
    empty = generation.num_empty
    drawn = len(generation.draws) + empty
    if empty and not command.is_drawn:
        return TooFewSamples(f"{empty} of {drawn} samples are empty and do not count. {TOO_FEW}")
    if empty:
        return NoUsableAnswers(
            f"{empty} of {drawn} drawn answers have no text (only reasoning, a tool call, or nothing). A "
            f"score needs two answers. The limit is {command.sampling.max_tokens} tokens per answer. Raise "
            "it for reasoning models (EIGENCAL_MAX_TOKENS or `sampling.max_tokens`)."
        )
    return TooFewSamples(TOO_FEW)


P = ParamSpec("P")
T = TypeVar("T")

# Work on more distinct answers, or on more characters, takes milliseconds and runs in a thread.
INLINE_DISTINCT = 64
INLINE_CHARACTERS = 4_000


@dataclass(slots=True)
class Costs:
    """What a score has cost so far: the seconds of each stage, and the tokens of all calls."""

    seconds: dict[str, float]
    usage: Usage = NO_TOKENS

    def add(self, stage: str, begun: float, usage: Usage = NO_TOKENS) -> float:
        """Add the time of a stage, from `begun` to now, and the tokens of its calls. Return the time now."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - begun
        self.usage += usage
        return now


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Samples to be scored, and the command that asked for them.

    `chosen`: the calibration that the command names by id, else None.
    """

    command: ScoreCommand
    chosen: Calibration | None
    generation: Generation
    costs: Costs


@dataclass(frozen=True, slots=True)
class Checked:
    """The self-checks of texts.

    p_true: P(True) of each text in [0, 1], None if unknown; empty if it was not requested. by: as in
    `Fingerprint.self_check`; "" if unknown. usage: tokens of the calls. is_asked: the LLM was asked.
    warnings: why a requested P(True) is missing.
    """

    p_true: Sequence[float | None] = ()
    by: str = ""
    usage: Usage = field(default_factory=Usage)
    is_asked: bool = False
    warnings: Sequence[ScoreWarning] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """An observation with its vectors, their embedder, and warnings.

    vectors: (d,) by text, also of the sentences of `answer_claims`. question: its vector (d,) if a
    calibration may need it, else None. embedder: made the vectors. made_by: the same with the kernel and the
    comparing LLM.
    """

    observation: Observation
    vectors: Mapping[str, NDArray[np.float32]]
    question: NDArray[np.float32] | None
    embedder: EmbedderIdentity
    made_by: EmbedderIdentity
    answer_claims: AnswerClaims | None
    warnings: Sequence[ScoreWarning]


class LiveLoad:
    """Counts running live scores. Jobs wait for them."""

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
    """Scores prompts. `live` counts running scores; jobs give way to them.

    `claims`: scores long answers by claim. `compare`, `self_check`: defaults for requests that do not set
    them. `threads`: for work that would block the event loop.
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

        A score needs two answers, because the spectrum of one answer is always 1. One is enough if a
        calibration by evidence fits. With `num_samples` 0 it needs none. Raises TooFewSamples if fewer are
        requested or supplied; NoUsableAnswers if fewer had text; DeadlineExceeded; InvalidRequest for a blank
        candidate; NotFound for an unknown calibration; and the errors of the LLM and the embedder.
        """
        async with in_time(command), self._checking(command) as checking:
            with self._live.one():
                return await self._scored(await self._draw(command), checking)

    async def draw(self, command: ScoreCommand) -> Samples:
        """Return the samples of a score, to be scored by `finish`. Raises like `score`.

        For callers that do not have the candidate yet. Drawing and comparing can start without it.
        """
        with self._live.one():
            drawn = await self._draw(command)
            if self.choice.is_by_llm(drawn.command) and drawn.generation.draws:
                # The replies are kept for `finish`.
                texts, index = distinct([draw.text for draw in drawn.generation.draws])
                begun = time.perf_counter()
                comparison, _ = await self._compare(drawn, texts, index, None)
                drawn.costs.add("compare", begun, comparison.usage if comparison else NO_TOKENS)
            return drawn

    async def finish(self, drawn: Samples, candidate: str | None) -> Score:
        """Return the score of samples from `draw`, with a candidate to judge. Raises like `score`."""
        _refuse_blank(candidate)
        command = replace(drawn.command, candidate=candidate)
        async with self._checking(command) as checking:
            with self._live.one():
                return await self._scored(replace(drawn, command=command), checking)

    async def _draw(self, command: ScoreCommand) -> Samples:
        _refuse_blank(command.candidate)
        begun = time.perf_counter() if command.arrived is None else command.arrived
        chosen = await self.choice.named(command.calibration)
        if command.as_recommended:
            number = self.choice.recommended(command, chosen)
            if number is not None and (number or command.candidate_logprob is not None):
                command = replace(command, num_samples=number)
        started = time.perf_counter()
        if command.draws_none:
            undrawn = Generation((), "", omitted=self._llm.identity(command).omitted)
            return Samples(command, chosen, undrawn, Costs({"queue": started - begun}))
        if command.num_samples < MIN_SAMPLES and not self.choice.serves_one(command, chosen):
            raise TooFewSamples(TOO_FEW)
        if command.samples is None:
            generation = await self._llm.generate(command)
        else:
            generation = Generation(supplied_draws(command.samples, command.logprobs), model="")
        took, queued = time.perf_counter() - started, generation.queued_s
        seconds = {"queue": started - begun + queued, "generate": max(took - queued, 0.0)}
        draws = usable(generation.draws)
        generation = replace(generation, draws=draws, num_empty=len(generation.draws) - len(draws))
        if not draws or (len(draws) < MIN_SAMPLES and not self.choice.serves_one(command, chosen)):
            raise too_few(generation, command)
        return Samples(command, chosen, generation, Costs(seconds, generation.usage))

    @asynccontextmanager
    async def _checking(self, command: ScoreCommand) -> AsyncIterator["asyncio.Task[Checked] | None"]:
        """Yield the running self-check of the candidate; None without one, or if the answers are supplied."""
        if command.candidate is None or is_blank(command.candidate) or not command.is_drawn:
            yield None
            return
        async with _running(self._check(command, [command.candidate.strip()])) as checking:
            yield checking

    async def _check(self, command: ScoreCommand, texts: Sequence[str]) -> Checked:
        """Return the self-checks of texts. Errors of the LLM become a warning."""
        is_wanted = self._self_check if command.self_check is None else command.self_check
        question, left_s = command.prompt.whole_question, _left_s(command)
        if not is_wanted or not question or not texts:
            return Checked()
        try:
            replies = await self._asker.ask(
                [is_correct(question, text) for text in texts],
                model=command.model,
                priority=command.priority,
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
        seen = await self._observe(drawn)
        command, costs, observation = drawn.command, drawn.costs, seen.observation
        begun = time.perf_counter()
        applied, about = self.choice.serving(
            command, drawn.chosen, drawn.generation, seen.made_by, observation.evidence
        )
        if applied is None and not command.draws_none and len(observation.draws) < MIN_SAMPLES:
            # An unexpected model answered, or the answer has no log-probability.
            raise too_few(drawn.generation, command)
        needs_check = applied is not None and applied.needs_self_check(len(observation.draws))
        begun, checked = costs.add("spectrum", begun), Checked()
        if checking is not None:
            checked = await checking
        elif command.is_drawn or command.self_check or needs_check:
            # With supplied samples the LLM is called only if need be.
            checked = await self._check(command, [observation.judged])
        if checked.is_asked:
            begun = costs.add("self_check", begun, checked.usage)
        # The first decision imports scipy, which takes half a second.
        decides = command.target is not None and applied is not None and bool(applied.calibration.selectors)
        slow = decides or _is_slow(observation.texts)

        p_true = checked.p_true[0] if checked.p_true else None

        def judged() -> tuple[Judgement, float | None, list[ScoreWarning]]:
            judgement = judge(observation, applied, command.target, p_true, checked.by)
            return judgement, *p_value(applied, seen.question, observation)

        judgement, ood_p_value, unusual = await self._maybe_in_thread(slow, judged)
        costs.add("spectrum", begun)
        about = [*seen.warnings, *about, *checked.warnings, *unusual]
        claims = None
        if seen.answer_claims is not None:
            claims = await self._claim_scores(drawn, seen, seen.answer_claims)
        return compose(drawn, seen, applied, judgement, p_true, ood_p_value, about, claims)

    async def _observe(self, drawn: Samples) -> Observed:
        """Embed and compare the texts."""
        command, generation, costs = drawn.command, drawn.generation, drawn.costs
        begun = time.perf_counter()
        texts, index = distinct([draw.text for draw in generation.draws])
        candidate = None if command.candidate is None else command.candidate.strip()
        known, question = with_candidate(texts, candidate), command.prompt.question or ""
        is_llm = self.choice.is_by_llm(command)
        by_llm = is_llm and not command.draws_none
        answer_claims = await self._claims.read(command, texts, candidate, len(index))
        to_embed = [question] if self.choice.compares_questions(command, drawn.chosen) else []
        if not command.draws_none:
            kernel_name = FACTS if by_llm else self._embedder.kernel
            reading = await self._maybe_in_thread(
                _is_slow(known), read_texts, known, question, len(texts), kernel_name
            )
            of_claims = answer_claims.to_embed() if answer_claims else []
            to_embed = [*reading.compared, *to_embed, *of_claims]
        to_embed = list(dict.fromkeys(to_embed))
        comparison, warnings = None, list[ScoreWarning]()
        if by_llm:  # concurrently: they wait for different servers
            async with _running(self._compare(drawn, texts, index, candidate)) as comparing:
                embedded = await self._embed(to_embed)
                begun = costs.add("embed", begun)
                comparison, warnings = await comparing
            begun = costs.add("compare", begun, comparison.usage if comparison else NO_TOKENS)
        else:
            embedded = await self._embed(to_embed)
            begun = costs.add("embed", begun)
        made_by = replace(embedded.made_by, kernel=FACTS) if by_llm else embedded.made_by
        if comparison is not None or (is_llm and command.draws_none):
            made_by = compared_by(made_by, "" if comparison is None else comparison.model)
        vectors = dict(zip(to_embed, embedded.vectors, strict=True))

        def observed() -> tuple[Observation, list[ScoreWarning]]:
            if command.draws_none:
                assert candidate is not None and command.candidate_logprob is not None
                alone = observe_alone(
                    candidate, command.candidate_logprob, made_by.dimension, command.prompt.question
                )
                return alone, []
            same = None if comparison is None else comparison.same
            rows = np.array([vectors[text] for text in reading.compared], dtype=np.float32)
            kernel = kernel_of(reading, rows, same)
            found = observe(
                generation.draws,
                index,
                texts,
                candidate,
                kernel,
                made_by.dimension,
                command.prompt.question,
                indistinct_texts(known, reading.compared, kernel),
            )
            return found, indistinct_answers(found)

        observation, about = await self._maybe_in_thread(_is_slow(known), observed)
        costs.add("spectrum", begun)
        about += [*_truncated(drawn), *warnings]
        return Observed(
            observation, vectors, vectors.get(question), embedded.made_by, made_by, answer_claims, about
        )

    async def _compare(
        self, drawn: Samples, texts: Sequence[str], index: NDArray[np.int_], candidate: str | None
    ) -> tuple[Comparison | None, list[ScoreWarning]]:
        """Return the LLM's comparisons of the answers; None and a warning if they fail or are late.

        The candidate comes first, then the answers by descending frequency.
        """
        command, known = drawn.command, with_candidate(texts, candidate)
        order = np.argsort(-np.bincount(index, minlength=len(texts)), kind="stable").tolist()
        if candidate is not None:
            order.insert(0, known.index(candidate))
        try:
            comparison = await self._comparer.compare(
                command.prompt.question or "",
                known,
                order,
                model=command.model,
                priority=command.priority,
                deadline_s=max(MAX_COMPARE_S - drawn.costs.seconds.get("compare", 0.0), 0.0),
            )
            why = NO_REPLY if comparison.is_silent else ""
        except EigencalError as error:
            why = error.full_detail
        if not why:
            return comparison, []
        message = f"The answers are compared without the LLM. {why}"
        return None, [warning("comparison_missing", message)]

    async def _claim_scores(self, drawn: Samples, seen: Observed, answer_claims: AnswerClaims) -> ClaimScores:
        """Return the claims of the judged text."""
        command, chosen, judged = drawn.command, drawn.chosen, seen.observation.judged
        costs, begun = drawn.costs, time.perf_counter()
        texts = [draw.text for draw in drawn.generation.draws]
        if command.candidate is None and judged in texts and len(texts) > MIN_SAMPLES:
            texts.remove(judged)  # the judged text would support its own claims
        calibration, warnings = None, list[ScoreWarning]()
        if not answer_claims.is_json(judged):
            calibration, about = self.choice.fitting(
                command, chosen, drawn.generation, seen.embedder, unit="claim"
            )
            warnings += [warning_ for warning_ in about if warning_.code == "calibration_mismatch"]
        if calibration is not None and command.draws_none and 0 not in calibration.selectors:
            calibration = None
        applied = None if calibration is None else applied_to(calibration, len(texts))
        if calibration is not None and applied is None:
            warnings += [mismatch(calibration, ["num_samples"])]
        slow = _is_slow([*seen.observation.texts, judged])
        _, unusual = await self._maybe_in_thread(slow, p_value, applied, seen.question, seen.observation)
        begun = costs.add("spectrum", begun)
        checked = await self._check(command, self._claims.to_check(answer_claims, judged, texts, applied))
        if checked.is_asked:
            begun = costs.add("self_check", begun, checked.usage)
        needed = None if applied is None else applied.calibration.fingerprint.self_check
        scores = await self._claims.scores(
            command,
            answer_claims,
            judged,
            texts,
            seen.vectors,
            seen.embedder.dimension,
            applied,
            checked.p_true if checked.by == needed else (),
        )
        about = [*unusual, *warnings, *checked.warnings]
        costs.add("spectrum", begun)
        return replace(scores, warnings=[*scores.warnings, *about])

    async def _maybe_in_thread(
        self, slow: object, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return the result of `work`, computed in a thread if `slow`."""
        return await self._threads.run(work, *args, **kwargs) if slow else work(*args, **kwargs)

    async def _embed(self, texts: Sequence[str]) -> Embedded:
        """Embed the texts. Without texts, a health check may be needed to learn the embedder's identity."""
        if not texts:
            with suppress(EmbedderUnavailable):
                return await self._embedder.embed(texts)
            await self._embedder.check()
        return await self._embedder.embed(texts)


@asynccontextmanager
async def _running(work: Coroutine[Any, Any, T]) -> AsyncIterator["asyncio.Task[T]"]:
    """Run work while the context is open, and cancel it at the end."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _refuse_blank(candidate: str | None) -> None:
    if candidate is not None and is_blank(candidate):
        msg = "must not be blank"
        raise InvalidRequest(f"candidate: {msg}", [{"loc": ["body", "candidate"], "msg": msg}])


def _truncated(drawn: Samples) -> list[ScoreWarning]:
    """Return a warning if at least `TRUNCATED_SHARE` of the drawn answers are cut by max_tokens."""
    draws, command = drawn.generation.draws, drawn.command
    cut = sum(draw.truncated for draw in draws)
    if not command.is_drawn or not draws or cut < TRUNCATED_SHARE * len(draws):
        return []
    message = (
        f"{cut} of {len(draws)} answers were cut by max_tokens ({command.sampling.max_tokens}); the score is "
        "based on their beginnings. Allow more tokens, or ask the model for shorter answers."
    )
    return [warning("truncated_samples", message)]


def _is_slow(texts: Sequence[str]) -> bool:
    """Return True if processing the texts in the event loop would block it."""
    return len(texts) > INLINE_DISTINCT or sum(map(len, texts)) > INLINE_CHARACTERS


def compose(
    drawn: Samples,
    seen: Observed,
    applied: ServedCalibration | None,
    judgement: Judgement,
    p_true: float | None,
    ood_p_value: float | None,
    warnings: list[ScoreWarning],
    claims: ClaimScores | None,
) -> Score:
    """Return the score. p_true: the self-check of the judged text. claims: None if not scored by claim."""
    command, generation, observation = drawn.command, drawn.generation, seen.observation
    laps = {stage: round(1000 * took, 3) for stage, took in drawn.costs.seconds.items()}
    laps["total"] = round(1000 * sum(drawn.costs.seconds.values()), 3)
    if not command.is_drawn:
        laps.pop("generate", None)
    texts = [draw.text for draw in generation.draws]
    values: dict[str, Any] = {}
    if texts:
        served, raw = judgement.served, judgement.raw
        values = {
            "lambda_max": served.lambda_max,
            "entropy": served.entropy,
            "entropy_normalized": served.entropy_normalized(len(texts)),
            "uncalibrated": SpectrumValues.model_construct(lambda_max=raw.lambda_max, entropy=raw.entropy),
            "evidence": observation.evidence,
        }
    else:
        of_spectrum = ("lambda_max", "entropy", "entropy_normalized", "uncalibrated", "evidence")
        values = dict.fromkeys(of_spectrum)
    if claims is not None:
        known = {warning_.code for warning_ in warnings}
        warnings = warnings + [warning_ for warning_ in claims.warnings if warning_.code not in known]
        values |= {"claims": claims.claims, "claims_calibration": claims.calibration}
    score = Score.model_construct(
        id=new_id("scr"),
        answer=observation.leaders[0],
        probability_correct=judgement.probability_correct,
        candidate=judgement.candidate,
        self_check=p_true,
        decision=judgement.decision,
        calibrated=applied is not None and (bool(texts) or judgement.unavailable_reason is None),
        calibration=None if applied is None else applied.used,
        ood_p_value=ood_p_value,
        warnings=warnings,
        model=generation.model or None,
        embedder=seen.made_by.name,
        kernel=seen.made_by.kernel,
        num_samples=len(texts),
        num_distinct=len(observation.texts) if texts else 0,
        num_refusals=judgement.num_refusals,
        num_truncated=sum(draw.truncated for draw in generation.draws),
        num_empty=generation.num_empty,
        modes=[*judgement.modes] if texts else [],
        samples=texts,
        timings_ms=Timings.model_construct(None, **laps),
        usage=_usage(drawn),
        **values,
    )
    score._num_agreeing = judgement.num_agreeing
    score._unavailable_reason = judgement.unavailable_reason
    score._is_held_back = judgement.is_held_back
    return score


def _usage(drawn: Samples) -> TokenUsage | None:
    """Return the tokens used; None if the LLM was not called."""
    usage, generation = drawn.costs.usage, drawn.generation
    if usage == Usage() and not (generation.draws and generation.model):
        return None
    return TokenUsage.model_construct(
        prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens
    )
