"""The command for a score, and the model of a score that routes return."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, computed_field

from service.claims.comparison import Compare
from service.embedding.port import Kernel
from service.llm.port import GenerationRequest, Message, Priority, Sampling
from service.spectral.selective import CONFIDENCE

DEFAULT_TARGET_ERROR = 0.2
MAX_ITEMS = 256  # items of a batch, and answers to a prompt
DrawnEffort = Literal["low", "medium", "high"]
Effort = Literal["none", DrawnEffort, "auto"]
# Number of samples. "auto" uses this number if the calibration's report recommends none.
EFFORTS: dict[Effort, int] = {"none": 0, "low": 3, "medium": 8, "high": 20, "auto": 3}


# The command: from the request, with defaults from the settings.


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a decision.

    `error`: largest share of wrong answers among those let through, in (0, 1). `confidence`: probability that
    the error is kept, in (0, 1). `by_default`: neither request nor settings set a target, so there is a
    decision only if a calibration can make it. `by_caller`: the request sets the error, so the default
    calibration, which promises nothing, may decide.
    """

    error: float
    confidence: float
    by_default: bool = False
    by_caller: bool = False


@dataclass(frozen=True, slots=True)
class ScoreCommand:
    """A request for a score: a prompt for the LLM (`generation`), or `samples` that the caller has drawn.

    `logprobs`: log-probability of each whole sample, in nats; None: unknown.
    `calibration`: "active", "none", or the id of a stored calibration.
    `candidate`: a text to judge by the samples; `candidate_is_drawn`: it is one of them. `candidate_logprob`:
    its log-probability in nats, by which it is judged without samples. `candidate_tokens`: its tokens with
    their log-probabilities, if known. `target`: the target of the decision.
    `as_recommended`: draw the number of samples that the calibration's report recommends, if any.
    `claims`: also score the answer claim by claim; None: if it is long. `quotes`: whether the score may list
    disagreements, which quote samples.
    `asked`: the question that supplied samples answer; None: unknown. `compare`: how answers are compared;
    None: the service's setting.
    """

    generation: GenerationRequest | None = None
    samples: tuple[str, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    source_label: str = ""
    calibration: str = "active"
    candidate: str | None = None
    candidate_logprob: float | None = None
    candidate_tokens: tuple[tuple[str, float], ...] = ()
    candidate_is_drawn: bool = False
    as_recommended: bool = False
    target: Target | None = None
    claims: bool | None = None
    quotes: bool = True
    asked: str | None = None
    compare: Compare | None = None
    arrived: float | None = None  # time.perf_counter() when the request came in

    @property
    def draws_none(self) -> bool:
        """Return True if no samples are drawn and the candidate is judged by its own log-probability."""
        return self.generation is not None and self.generation.num_samples == 0

    @property
    def question(self) -> str | None:
        """Return the text of the question; see `question_text`."""
        return self.asked if self.generation is None else self.generation.question

    @property
    def num_samples(self) -> int:
        """Return the number of samples requested or supplied."""
        return len(self.samples or ()) if self.generation is None else self.generation.num_samples


@dataclass(frozen=True, slots=True)
class Serving:
    """Defaults for drawing samples. Conversations use `messages_sampling`, prompts `sampling`.

    `target_error`: the target error of decisions; None: DEFAULT_TARGET_ERROR if a calibration can decide.
    """

    num_samples: int
    sampling: Sampling
    messages_sampling: Sampling
    target_error: float | None = None

    def target(self, error: float | None = None, confidence: float | None = None) -> Target:
        """Return the target of the request, else of the settings, else the default."""
        target_error = self.target_error if error is None else error
        return Target(
            DEFAULT_TARGET_ERROR if target_error is None else target_error,
            CONFIDENCE if confidence is None else confidence,
            by_default=target_error is None and confidence is None,
            by_caller=error is not None,
        )

    def request(
        self,
        *,
        prompt: str | None = None,
        messages: tuple[Message, ...] | None = None,
        num_samples: int | None = None,
        priority: Priority = Priority.LIVE,
    ) -> GenerationRequest:
        """Return a generation request with default sampling. Pass exactly one of `prompt` and `messages`."""
        return GenerationRequest(
            num_samples=self.num_samples if num_samples is None else num_samples,
            sampling=self.sampling if messages is None else self.messages_sampling,
            prompt=prompt,
            messages=messages,
            priority=priority,
        )


# The score. Clients read it as it is.

ScorePart = Literal["samples", "modes", "spectrum"]
PARTS = frozenset(get_args(ScorePart))


class Part(BaseModel):
    """Base of a score and its parts. Mostly made by `model_construct`: the values are not user input."""

    model_config = ConfigDict(frozen=True)


class SpectrumValues(Part):
    """The two numbers of a spectrum."""

    lambda_max: float = Field(description="Largest eigenvalue, 0..1. Higher = more certain.")
    entropy: float = Field(description="Von Neumann entropy in nats. Higher = less certain.")


class CalibrationUsed(Part):
    """The calibration that the score used, with the parameters for its number of answers."""

    id: str = Field(description="Id of the calibration.")
    method: Literal["depolarized", "temperature", "evidence"] = Field(description="The map applied.")
    temperature: float | None = Field(
        description="Matrix temperature T applied; null where no answer was drawn."
    )
    depolarization: float | None = Field(
        description="Depolarization g applied, 0 for `temperature`; with `evidence`, that of this very "
        "score. Null where no answer was drawn."
    )
    evidence_intercept: float | None = Field(
        None, description="With `evidence`: a of g = sigmoid(a + b logit u), u the missing mass."
    )
    evidence_slope: float | None = Field(None, description="With `evidence`: b.")
    created_at: datetime = Field(description="When it was fitted.")
    kernel: Kernel = Field(
        description="What it compares answers by: `facts`, what they say; `llm`, that and what the LLM says "
        "of each two; `paper`, the cosine of their embeddings."
    )
    origin: Literal["own", "default"] = Field(
        description="`own`: fitted for this very set-up. `default`: packaged, for want of such a one."
    )


class Evidence(Part):
    """What the log-probabilities of the answers say."""

    missing_mass: float = Field(
        description="Mass that the LLM gives to none of the answers, 0..1. Higher = less certain."
    )
    mean_logprob: float = Field(
        description="Mean log-probability of the whole answers, nats. Higher = more certain."
    )


class ScoreWarning(Part):
    """Something the caller should know."""

    code: str = Field(
        description="calibration_missing, calibration_mismatch, default_calibration, default_probability, "
        "evidence_missing, comparison_missing, partial_samples, truncated_samples, indistinct_answers, "
        "no_correctness_model, target_unreachable, unsupported_candidate, correctness_label_mismatch, "
        "out_of_distribution, length_out_of_range, refusals, logprobs_of_other_text or claims_left_out."
    )
    message: str = Field(description="The same for a person.")
    differs: list[str] | None = Field(None, description="For a mismatch: the parts that differ.")


class Candidate(Part):
    """What the answers say of the text given as `candidate`."""

    probability: float | None = Field(
        description="Its probability by Born's rule under the matrix served, 0..lambda_max. Higher = nearer "
        "to what the LLM means. Raw where `calibration` is null; null where no answer was drawn."
    )
    mode: int | None = Field(
        description="The meaning that it belongs to: which eigenvalue, from 0, the largest; an index into "
        "`modes` as far as those go. Null where more of it lies outside of all answers than on any meaning: "
        "it says what none of them said; and where no answer was drawn."
    )
    probability_correct: float | None = Field(
        description="Probability, 0..1, that the candidate is right. Null in the cases in which the "
        "`probability_correct` of the response is null, where `mode` is null, and for a refusal. Unlike "
        "`probability`, it rests on verdicts, if there are any: on whether answers to the calibration's "
        "questions were right."
    )


class Decision(Part):
    """Whether to let a text through, so that few of those let through are wrong."""

    action: Literal["answer", "abstain"] = Field(description="Let it through, or do not.")
    reason: str = Field(description="Why, and what to do with the text, for a person.")
    target_error: float = Field(description="Share of wrong ones allowed among those let through.")
    confidence: float = Field(
        description="How sure the promise is, 0..1: of calibrations on other questions drawn likewise, at "
        "least this share keep every error that they promise for this number of answers, all at once. So "
        "`target_error` may be chosen after looking at what is reachable. It says nothing of this one text."
    )
    threshold: float | None = Field(
        description="The least P(correct) that is let through; null where the target cannot be promised."
    )
    coverage: float | None = Field(
        description="Share of the calibration's questions that is let through, 0..1; 0 where none is. Null "
        "where the default calibration decides, which promises nothing."
    )


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of the candidate and of the score's own `answer`.

    `share`: share of the samples that lie closest to the candidate's mode, 0..1. `no_model`: why P(correct)
    is not based on verdicts, in words; None if it is. `unlike`: the prompt is too unlike the calibration's
    rows, so nothing is let through. `num_refusals`: number of samples without content. `is_refused`: the
    judged text or most samples have no content, so nothing is let through.
    """

    candidate: Candidate | None = None
    share: float = 0.0
    probability_correct: float | None = None
    decision: Decision | None = None
    no_model: str | None = None
    unlike: bool = False
    num_refusals: int = 0
    is_refused: bool = False

    @property
    def decisive(self) -> float | None:
        """P(correct) of the text that a decision is about: the candidate where there is one."""
        return self.probability_correct if self.candidate is None else self.candidate.probability_correct

    @property
    def is_unverified(self) -> bool:
        """Whether there is a P(correct) that is not based on verdicts."""
        return self.no_model is not None and (self.probability_correct, self.decisive) != (None, None)


class Mode(Part):
    """One latent meaning among the answers: an eigenvector of the density matrix."""

    probability: float = Field(description="Its served eigenvalue, 0..1.")
    share: float = Field(description="Share of the samples that lie closest to it, 0..1.")
    answer: str = Field(description="The sample most aligned with it.")


class DisagreementValue(Part):
    """What some of the answers say."""

    value: str = Field(description="As one of the answers writes it; `negated` or `not negated`.")
    share: float = Field(description="Share of the answers with content that say it, 0..1.")


class Disagreement(Part):
    """What answers say instead of one another."""

    kind: Literal["number", "name", "negation"] = Field(
        description="Numbers are compared with those of the same unit, names only between answers that have "
        "none in common."
    )
    values: list[DisagreementValue] = Field(
        description="The values by share, largest first, at most ten. The shares need not add up to 1: an "
        "answer may say nothing of it."
    )


class ClaimSupport(Part):
    """How many of the answers drawn say what a claim says."""

    agree: int = Field(description="Answers that mean the same.")
    differ: int = Field(description="Answers that speak of it and mean something else.")
    silent: int = Field(description="Answers that do not speak of it.")
    example: str | None = Field(
        description="What is said instead by an answer that differs, the least like it; null for none."
    )

    @property
    def answers(self) -> int:
        """How many answers were drawn."""
        return self.agree + self.differ + self.silent


class Claim(Part):
    """One claim of a long answer: a sentence, a list item, a row of a table, or a field of JSON."""

    text: str = Field(description="What it says, without Markdown's marks; of JSON `path: value`.")
    start: int = Field(
        description="Where it begins in the judged text (of a chat: in that of its choice), in characters "
        "(code points)."
    )
    end: int = Field(description="Where it ends.")
    lambda_max: float | None = Field(
        description="Largest eigenvalue served of what the answers say of it, 0..1. Higher = they agree "
        "more. Null where no answer was drawn, as are the next two and `support`."
    )
    entropy: float | None = Field(description="Von Neumann entropy served, nats. Higher = less certain.")
    probability: float | None = Field(
        description="Its probability by Born's rule under the matrix served, 0..lambda_max. Higher = nearer "
        "to what the answers mean."
    )
    rank_score: float | None = Field(
        description="A number to sort claims by, 0..1, where no calibration of claims serves: `probability` "
        "or, where no answer was drawn, the probability of its least likely token. Higher = more likely "
        "right, but no probability of that. Null elsewhere, and where no answer speaks of the claim."
    )
    probability_correct: float | None = Field(
        description="Probability that the claim is right, 0..1, by the verdicts on claims of the "
        "calibration's rows. Null without such a calibration, and where no answer speaks of the claim."
    )
    decision: Literal["answer", "abstain"] | None = Field(
        description="Let the claim through, or do not, so that of one claim of each answer, taken at random, "
        "few of those let through are wrong; null where no calibration of claims can decide."
    )
    logprob: float | None = Field(
        description="Log-probability of all its tokens, nats. Higher = more certain. Null where they are not "
        "known."
    )
    fact_logprob: float | None = Field(
        description="That of the tokens of its numbers and names alone, without those of the question; where "
        "it has none, of its other words."
    )
    least_logprob: float | None = Field(description="That of the least likely of these tokens.")
    support: ClaimSupport | None = Field(description="What the answers drawn say of it.")

    @computed_field(  # type: ignore[prop-decorator]
        description="Whether a reader should doubt it: where the `decision` is to abstain; without one, "
        "where `probability_correct` is below 0.5; without that, too, where none of the answers drawn "
        "agrees. Null where nothing tells."
    )
    @property
    def doubtful(self) -> bool | None:
        """Return True if a reader should doubt the claim, None if that is unknown."""
        if self.decision is not None:
            return self.decision == "abstain"
        if self.probability_correct is not None:
            return self.probability_correct < 0.5
        return None if self.support is None else self.support.agree == 0


class Mark(Part):
    """A claim in the text of a chat's answer, for the reader of the chat."""

    text: str = Field(description="What it says, as of the claim.")
    start: int = Field(description="Where it begins in the text of the choice, in characters (code points).")
    end: int = Field(description="Where it ends.")
    doubtful: bool | None = Field(description="Whether to show it as doubtful, as of the claim.")
    why: str | None = Field(
        description="What tells against it, in a reader's words; null where it is not doubtful."
    )


def mark(claim: Claim) -> Mark:
    """Return the mark of a claim, for front ends."""
    return Mark.model_construct(
        text=claim.text,
        start=claim.start,
        end=claim.end,
        doubtful=claim.doubtful,
        why=_why(claim) if claim.doubtful else None,
    )


def _why(claim: Claim) -> str:
    support, words = claim.support, list[str]()
    if claim.probability_correct is not None:
        words.append(f"right with probability {claim.probability_correct:.0%}")
    if support is not None:
        words.append(f"said in {support.agree} of {support.answers} answers")
        if support.differ:
            example = f", such as “{support.example}”" if support.example else ""
            words.append(f"something else in {support.differ}{example}")
        if support.silent:
            words.append(f"nothing of it in {support.silent}")
    text = "; ".join(words) or "not sure enough"
    return f"{text[0].upper()}{text[1:]}"


class FullSpectrum(Part):
    """The whole spectrum."""

    eigenvalues: list[float] = Field(description="Served eigenvalues, descending.")
    null_value: float = Field(description="Served eigenvalue of each remaining direction.")
    null_count: int = Field(description="Number of remaining directions.")
    uncalibrated: list[float] = Field(description="Eigenvalues as they came, descending, sum 1.")


class TokenUsage(Part):
    """Tokens, as the LLM server counts them."""

    prompt_tokens: int = Field(description="Tokens of the prompt.")
    completion_tokens: int = Field(description="Tokens of all answers.")


class Timings(Part):
    """Milliseconds by stage."""

    queue: float = Field(description="Waiting: for parsing and for a slot at the LLM.")
    generate: float | None = Field(None, description="Drawing the answers; null where none was drawn.")
    embed: float = Field(description="Embedding the distinct answers, and the question.")
    compare: float | None = Field(
        None, description="Comparing the answers by the LLM, after `embed`; null where it was not asked."
    )
    spectrum: float = Field(description="Spectrum, calibration and modes.")
    total: float = Field(description="All of it.")


class Score(Part):
    """A scored prompt."""

    id: str = Field(description="Id of this score.")
    answer: str = Field(
        description="The sample most aligned with the dominant eigenvector; the `candidate` where no answer "
        "was drawn."
    )
    probability_correct: float | None = Field(
        description="Probability that `answer` is right, 0..1, estimated from the verdicts on the "
        "calibration's questions; by the default calibration from none (warning `default_probability`). Null "
        "without a calibration, if the calibration has no correctness model for this number of answers, if "
        "the model needs log-probabilities that are missing, and if `answer` is a refusal."
    )
    rank_score: float | None = Field(
        None,
        description="A number to sort texts by where the default calibration serves: `probability_correct` "
        "of the `candidate` or, without one, of `answer`. Null elsewhere.",
    )
    candidate: Candidate | None = Field(description="The `candidate` judged; null without one.")
    decision: Decision | None = Field(
        description="Whether to let the `candidate` (without a candidate: `answer`) through, so that the "
        "target error is kept. Null if no calibration can decide and the request has no `target_error`, "
        "unless the answers are refusals. Without a `probability_correct` the decision is to abstain."
    )
    lambda_max: float | None = Field(
        description="Largest eigenvalue served, 0..1: the confidence. Higher = more certain. It is how much "
        "of their meaning the answers share, not the probability that the answer is right. Null where no "
        "answer was drawn (effort `none`), as are the other values of a spectrum."
    )
    entropy: float | None = Field(description="Von Neumann entropy served, nats. Higher = less certain.")
    entropy_normalized: float | None = Field(
        description="Entropy over the largest that the spectrum allows, 0..1."
    )
    calibrated: bool = Field(
        description="Whether a calibration of this very set-up was applied. False where the default stood in "
        "for one (`calibration.origin`), or nothing did."
    )
    uncalibrated: SpectrumValues | None = Field(description="The same two numbers without calibration.")
    calibration: CalibrationUsed | None = Field(
        description="The calibration used, be it the default; null: none, and the values are raw."
    )
    ood_p_value: float | None = Field(
        description="Conformal p-value, 0..1, of the hypothesis that the prompt is like the calibration's "
        "rows. It compares the question and, if answers were drawn, their mean length. Lower = less alike. "
        "Below 0.02 the score has a warning. The smallest possible value is 2 / (rows + 1) by the question "
        "and 4 / (rows + 1) by the length, so with fewer than 200 rows the length alone cannot reach 0.02; "
        "`length_out_of_range` then warns of lengths that no row has. Null without a calibration, and for "
        "calibrations that do not keep the prompts of their rows."
    )
    evidence: Evidence | None = Field(
        description="What the log-probabilities say; null unless every answer has one."
    )
    warnings: list[ScoreWarning] = Field(description="What to know about this score.")
    model: str | None = Field(
        description="Model that answered; null for supplied samples, and for a supplied candidate where no "
        "answer was drawn."
    )
    embedder: str = Field(description="Embedder of the answers.")
    kernel: Kernel | None = Field(
        None, description="What the answers were compared by, as of `calibration.kernel`."
    )
    num_samples: int = Field(description="Answers scored.")
    num_distinct: int = Field(description="Distinct ones among them.")
    num_truncated: int = Field(description="Answers cut by max_tokens; they count.")
    num_empty: int = Field(
        description="Answers without text: left out as failed, unless the settings say what they mean."
    )
    num_refusals: int = Field(
        description="Number of drawn answers without content: refusals, placeholders (null), errors, "
        "punctuation, or the question itself. They count in the spectrum. If the judged text is a refusal, "
        "or more than half of the answers are, the decision is to abstain, with the warning `refusals`."
    )
    disagreements: list[Disagreement] | None = Field(
        None,
        description="Where the drawn answers hold different numbers, names or negations. Empty: nowhere. "
        "Null where fewer than two answers have content, where they are scored claim by claim, and in "
        "chats under EIGENCAL_ABSTAIN.",
    )
    modes: list[Mode] | None = Field(None, description="The leading meanings, at most five.")
    samples: list[str] | None = Field(None, description="The answers, in the order drawn.")
    spectrum: FullSpectrum | None = Field(None, description="The whole spectrum.")
    claims: list[Claim] | None = Field(
        None,
        description="The claims of the `candidate` or, without one, of `answer`, in their order, where it is "
        "long or they were asked for: what it says, sentence by sentence. Absent elsewhere.",
    )
    claims_share: float | None = Field(
        None,
        description="How much of that text is claims, 0..1. The rest is code, headings, questions, greetings "
        "and what the user said. With `claims` alone.",
    )
    probability_all_correct: float | None = Field(
        None,
        description="Probability that every claim of that text is right, 0..1. Null without a calibration of "
        "claims that tells. With `claims` alone.",
    )
    claims_calibration: CalibrationUsed | None = Field(
        None, description="The calibration that the claims are served by; null: none. With `claims` alone."
    )
    usage: TokenUsage | None = Field(
        description="Tokens used, comparisons included; null where the LLM was not called."
    )
    timings_ms: Timings = Field(description="Where the time went.")

    # For gateways, which report parts of it in their own formats.
    _judgement: Judgement = PrivateAttr(default_factory=Judgement)

    @property
    def supported(self) -> bool:
        """Whether a sample supports the text decided about. True without a candidate or without samples."""
        return self.num_samples == 0 or self.candidate is None or self.candidate.mode is not None

    @property
    def decisive(self) -> float | None:
        """P(correct) of the text that a decision is about: the candidate where there is one."""
        return self.probability_correct if self.candidate is None else self.candidate.probability_correct

    @property
    def no_model(self) -> str | None:
        """Why P(correct) is not based on verdicts, in words; None if it is."""
        return self._judgement.no_model

    @property
    def num_agreeing(self) -> int:
        """Number of samples that lie closest to the candidate's mode; 0 without a mode."""
        return round(self._judgement.share * self.num_samples)

    @property
    def unlike(self) -> bool:
        """Whether the prompt is too unlike the calibration's rows to let anything through."""
        return self._judgement.unlike

    @property
    def is_refused(self) -> bool:
        """Whether the text decided about or most samples are refusals."""
        return self._judgement.is_refused

    def document(self, parts: Collection[ScorePart] = ()) -> dict[str, Any]:
        """Return the score as a JSON object, with these optional parts."""
        return self.model_dump(mode="json", exclude_unset=True, exclude=set(PARTS.difference(parts)))

    def json_text(self, parts: Collection[ScorePart]) -> str:
        """Return the score as JSON text, with these optional parts."""
        return self.model_dump_json(exclude_unset=True, exclude=set(PARTS.difference(parts)))

    def headers(self) -> dict[str, str]:
        """Return the score's headers, for proxies that drop bodies."""
        headers = {}
        if self.lambda_max is not None:
            headers["X-Lambda-Max"] = f"{self.lambda_max:.6f}"
        if self.entropy is not None:
            headers["X-Entropy"] = f"{self.entropy:.6f}"
        if self.calibration is not None:
            headers["X-Calibration-ID"] = self.calibration.id
        if self.candidate is not None and self.candidate.probability is not None:
            headers["X-Candidate-Probability"] = f"{self.candidate.probability:.6f}"
        if self.decisive is not None:
            headers["X-Probability-Correct"] = f"{self.decisive:.6f}"
        if self.decision is not None:
            headers["X-Decision"] = self.decision.action
        return headers


def warning(code: str, message: str, differs: Collection[str] = ()) -> ScoreWarning:
    """Return a warning; an empty `differs` is left out."""
    more = {"differs": list(differs)} if differs else {}
    return ScoreWarning.model_construct(None, code=code, message=message, **more)


HEADERS: dict[str, Any] = {
    "X-Lambda-Max": {
        "description": "`lambda_max`; absent where no answer was drawn.",
        "schema": {"type": "number"},
    },
    "X-Entropy": {
        "description": "`entropy`; absent where no answer was drawn.",
        "schema": {"type": "number"},
    },
    "X-Calibration-ID": {
        "description": "Id of the calibration used; absent without one.",
        "schema": {"type": "string"},
    },
    "X-Candidate-Probability": {
        "description": "`candidate.probability`; absent without a candidate, or where no answer was drawn.",
        "schema": {"type": "number"},
    },
    "X-Probability-Correct": {
        "description": "`probability_correct` of the `candidate` or, without one, of `answer`; absent where "
        "null.",
        "schema": {"type": "number"},
    },
    "X-Decision": {
        "description": "`decision.action`: `answer`, let the text through, or `abstain`, hold it back. The "
        "text is the `candidate` or, without one, `answer`. Absent where `decision` is null.",
        "schema": {"type": "string", "enum": ["answer", "abstain"]},
    },
}
