"""The command for a score, and the model of a score that routes return."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, computed_field

from service.claims.comparison import Compare
from service.embedding.port import Kernel
from service.llm.prompt import UNKNOWN, GenerationRequest, Message, Priority, Prompt, Sampling, Template
from service.spectral.selective import CONFIDENCE

DEFAULT_TARGET_ERROR = 0.2
MAX_ITEMS = 256  # items of a batch, and answers to a prompt
AUTO: Literal["auto"] = "auto"  # the number that the calibration's report recommends
NumSamples = Annotated[int, Field(ge=0, le=MAX_ITEMS)] | Literal["auto"]
UNRECOMMENDED = 3  # number of samples for "auto" if no report recommends one


# The command: from the request, with defaults from the settings.


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a decision.

    `error`: largest share of wrong answers among those let through, in (0, 1). `confidence`: probability that
    the error is kept, in (0, 1).
    """

    error: float
    confidence: float


@dataclass(frozen=True, slots=True)
class ScoreCommand(GenerationRequest):
    """A request for a score, of answers that the LLM draws or of `samples` that the caller has drawn.

    `prompt`: for `samples`, the question that they answer. `deadline_s`: for the score, from `arrived` on
    (time.perf_counter; None: from the call on).
    `logprobs`: log-probability of each whole sample, in nats; None: unknown.
    `calibration`: "active", "none", or the id of a stored calibration.
    `candidate`: a text to judge by the samples. `candidate_logprob`: its log-probability in nats; without
    samples, the candidate is judged by this alone. `candidate_tokens`: its tokens with their
    log-probabilities, if known. `target`: the target of the decision.
    `as_recommended`: draw the number of samples that the calibration's report recommends, if any.
    `claims`: also score the answer claim by claim; None: if it is long.
    `compare`: how answers are compared; `self_check`: whether the LLM checks the judged text; None: the
    service's setting.
    """

    sampling: Sampling = field(default_factory=Sampling)
    prompt: Prompt = UNKNOWN
    samples: tuple[str, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    source_label: str = ""
    calibration: str = "active"
    candidate: str | None = None
    candidate_logprob: float | None = None
    candidate_tokens: tuple[tuple[str, float], ...] = ()
    as_recommended: bool = False
    target: Target | None = None
    claims: bool | None = None
    compare: Compare | None = None
    self_check: bool | None = None
    arrived: float | None = None

    @property
    def is_drawn(self) -> bool:
        """Return True if the LLM draws the answers, unless `num_samples` is 0."""
        return self.samples is None

    @property
    def draws_none(self) -> bool:
        """Return True if no samples are drawn and the candidate is judged by its own log-probability."""
        return self.is_drawn and self.num_samples == 0


@dataclass(frozen=True, slots=True)
class Serving:
    """Defaults for drawing samples. Conversations use `messages_sampling`, prompts `sampling`.

    `template`: the text around prompts. `target_error`: of decisions; None: DEFAULT_TARGET_ERROR.
    """

    num_samples: int
    sampling: Sampling
    messages_sampling: Sampling
    template: Template = field(default_factory=Template)
    target_error: float | None = None

    def target(self, error: float | None = None, confidence: float | None = None) -> Target:
        """Return the target of the request, else of the settings, else the default."""
        target_error = self.target_error if error is None else error
        return Target(
            DEFAULT_TARGET_ERROR if target_error is None else target_error,
            CONFIDENCE if confidence is None else confidence,
        )

    def number_of(self, num_samples: NumSamples | None) -> int:
        """Return the number of samples to draw; for "auto", the number without a recommendation."""
        if num_samples is None:
            return self.num_samples
        return UNRECOMMENDED if num_samples == AUTO else num_samples

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
            prompt=self.template.prompt(prompt, messages),
            priority=priority,
        )


# The score. Clients read it as it is.

ScorePart = Literal["samples", "modes"]
PARTS = frozenset(get_args(ScorePart))


class Part(BaseModel):
    """Base of a score and its parts. Mostly made by `model_construct`: the values are not user input."""

    model_config = ConfigDict(frozen=True)


class SpectrumValues(Part):
    """Largest eigenvalue and entropy of a spectrum."""

    lambda_max: float = Field(description="Largest eigenvalue, 0..1. Higher = more certain.")
    entropy: float = Field(description="Von Neumann entropy in nats. Higher = less certain.")


class CalibrationUsed(Part):
    """The calibration that the score used, with the parameters for its number of answers."""

    id: str = Field(description="Id of the calibration.")
    method: Literal["depolarized", "temperature", "evidence"] = Field(description="The map applied.")
    temperature: float | None = Field(description="Matrix temperature T applied. Null without samples.")
    depolarization: float | None = Field(
        description="Depolarization g applied. 0 for `temperature`. For `evidence`: the g of this score. "
        "Null without samples."
    )
    evidence_intercept: float | None = Field(
        None, description="For `evidence`: a of g = sigmoid(a + b logit u). u is the missing mass."
    )
    evidence_slope: float | None = Field(None, description="For `evidence`: b of the same formula.")
    created_at: datetime = Field(description="Time of the fit.")
    kernel: Kernel = Field(
        description="Kernel that compares the answers: `facts` (numbers, names, negation, wording), "
        "`llm` (facts and the LLM's judgement of each pair) or `paper` (cosine of the embeddings)."
    )
    origin: Literal["own", "both", "bundled"] = Field(
        description="`own`: your questions. `bundled`: those that the service asks each new LLM. `both`: "
        "fewer than 100 of yours, so promises also count the bundled ones."
    )


class Evidence(Part):
    """Evidence from the log-probabilities of the answers."""

    missing_mass: float = Field(
        description="Probability that the LLM assigns to answers other than the samples, 0..1. Higher = "
        "less certain."
    )
    mean_logprob: float = Field(
        description="Mean log-probability of a whole answer in nats. Higher = more certain."
    )


class ScoreWarning(Part):
    """A warning about the score."""

    code: str = Field(
        description="Code of the warning: calibration_missing, calibration_mismatch, bundled_questions, "
        "evidence_missing, comparison_missing, self_check_missing, truncated_samples, "
        "indistinct_answers, out_of_distribution or claims_left_out."
    )
    message: str = Field(description="Explanation in plain English.")
    differs: list[str] | None = Field(
        None, description="For `calibration_mismatch`: the parts of the set-up that differ."
    )


class Candidate(Part):
    """The judgement of the text sent as `candidate`."""

    probability: float | None = Field(
        description="Probability of the candidate by Born's rule under the served matrix, 0..lambda_max. "
        "Higher = closer to the LLM's meaning. Raw if `calibration` is null. Null without samples."
    )
    mode: int | None = Field(
        description="Index of the candidate's meaning. 0 is the largest eigenvalue. The index also applies "
        "to `modes` if `modes` is long enough. Null if a larger part of the candidate lies outside all "
        "answers than on any meaning: no answer supports it. Null without samples."
    )
    probability_correct: float | None = Field(
        description="Probability that the candidate is right, 0..1. Null if `mode` is null although there "
        "are samples, and in the cases listed for `probability_correct` of the response. "
        "Unlike `probability`, it is estimated from verdicts on answers to the calibration's questions, if "
        "there are any."
    )


class Decision(Part):
    """The decision to let a text through or hold it back. It limits the share of wrong texts let through."""

    action: Literal["answer", "abstain"] = Field(
        description="`answer`: let the text through. `abstain`: hold it back."
    )
    reason: str = Field(description="Reason and advice in plain English.")
    target_error: float = Field(description="Largest share of wrong texts among those let through, 0..1.")
    confidence: float = Field(
        description="Confidence level of the promise, 0..1. At least this share of calibrations, on other "
        "questions drawn in the same way, keeps every error that it promises for this number of answers, "
        "all at once. `target_error` may therefore be chosen after looking at the errors that can be "
        "promised. The level does not describe this single text."
    )
    threshold: float | None = Field(
        description="Smallest P(correct) that is let through. Null if the target cannot be promised."
    )
    coverage: float | None = Field(
        description="Share of the calibration's questions that are let through, 0..1. 0 if none is let "
        "through."
    )


class Mode(Part):
    """One latent meaning among the answers: an eigenvector of the density matrix."""

    probability: float = Field(description="Served eigenvalue, 0..1.")
    share: float = Field(description="Share of the samples that lie closest to this meaning, 0..1.")
    answer: str = Field(description="The sample most aligned with this meaning.")
    samples: list[int] = Field(
        description="Positions of the samples that lie closest to this meaning, in the order drawn, from 0."
    )


class ClaimSupport(Part):
    """Number of samples that support a claim, differ from it or do not mention it."""

    agree: int = Field(description="Number of answers with the same meaning.")
    differ: int = Field(description="Number of answers that mention the subject but mean something else.")
    silent: int = Field(description="Number of answers that do not mention the subject.")
    example: str | None = Field(
        description="Sentence of an answer that differs: the one least similar to the claim. Null if no "
        "answer differs."
    )

    @property
    def answers(self) -> int:
        """How many answers were drawn."""
        return self.agree + self.differ + self.silent


class Claim(Part):
    """One claim of a long answer: a sentence, a list item, a table row or a field of JSON."""

    text: str = Field(description="Text of the claim without Markdown markup. For JSON: `path: value`.")
    start: int = Field(
        description="Start of the claim in the judged text (for chats: in the text of the choice), in "
        "characters (code points)."
    )
    end: int = Field(description="End of the claim in the same text, exclusive.")
    lambda_max: float | None = Field(
        description="Largest served eigenvalue of the answers' statements on the claim, 0..1. Higher = more "
        "agreement. Null without samples, like `entropy`, `probability` and `support`."
    )
    entropy: float | None = Field(description="Served von Neumann entropy in nats. Higher = less certain.")
    probability: float | None = Field(
        description="Probability of the claim by Born's rule under the served matrix, 0..lambda_max. Higher "
        "= closer to the meaning of the answers."
    )
    probability_correct: float | None = Field(
        description="Probability that the claim is right, 0..1, estimated from the verdicts on claims in "
        "the calibration's rows. Null without such a calibration, and if no answer mentions the claim."
    )
    decision: Literal["answer", "abstain"] | None = Field(
        description="`answer`: let the claim through. `abstain`: hold it back. The target error holds for "
        "one random claim of each answer: few of those let through are wrong. Null if no calibration of "
        "claims can decide."
    )
    logprob: float | None = Field(
        description="Log-probability of all tokens of the claim in nats. Higher = more certain. Null if it "
        "is unknown."
    )
    fact_logprob: float | None = Field(
        description="Log-probability of the claim's numbers and names in nats, without those of the "
        "question. If it has none: of its other words."
    )
    least_logprob: float | None = Field(
        description="Log-probability of the least likely token among those of `fact_logprob`, in nats."
    )
    support: ClaimSupport | None = Field(
        description="Number of samples that agree, differ or are silent. Null without samples."
    )

    @computed_field(  # type: ignore[prop-decorator]
        description="Whether a reader should doubt the claim. True if `decision` is `abstain`; without a "
        "decision, if `probability_correct` is below 0.5; without both, if no sample agrees. Null if none "
        "of the three is known."
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
    """A claim in the text of a chat's answer, for display to the reader."""

    text: str = Field(description="Text of the claim.")
    start: int = Field(
        description="Start of the claim in the text of the choice, in characters (code points)."
    )
    end: int = Field(description="End of the claim in the same text, exclusive.")
    doubtful: bool | None = Field(
        description="Whether to display the claim as doubtful: `doubtful` of the claim."
    )
    why: str | None = Field(description="Reason in plain English. Null if the claim is not doubtful.")


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
        words.append(f"stated in {support.agree} of {support.answers} answers")
        if support.differ:
            example = f", such as “{support.example}”" if support.example else ""
            words.append(f"different in {support.differ}{example}")
        if support.silent:
            words.append(f"not mentioned in {support.silent}")
    text = "; ".join(words) or "not sure enough"
    return f"{text[0].upper()}{text[1:]}"


class TokenUsage(Part):
    """Token counts of the LLM server."""

    prompt_tokens: int = Field(description="Tokens of the prompt.")
    completion_tokens: int = Field(description="Tokens of all answers.")


class Timings(Part):
    """Duration of each stage in milliseconds."""

    queue: float = Field(description="Waiting for parsing and for a slot at the LLM.")
    generate: float | None = Field(None, description="Drawing the answers. Null if the service drew none.")
    embed: float = Field(description="Embedding the distinct answers and the question.")
    compare: float | None = Field(
        None,
        description="Comparison of answers by the LLM, after `embed`. Null if the LLM was not asked.",
    )
    self_check: float | None = Field(
        None,
        description="Wait for self-checks, after all other calls. Null if the LLM was not asked.",
    )
    spectrum: float = Field(description="Spectrum, calibration, modes and claims.")
    total: float = Field(description="Total time.")


class Score(Part):
    """The score of a prompt."""

    id: str = Field(description="Id of the score.")
    answer: str = Field(
        description="The sample most aligned with the dominant eigenvector. Without samples: the `candidate`."
    )
    probability_correct: float | None = Field(
        description="Probability that `answer` is right, 0..1, estimated from the verdicts on the "
        "calibration's questions. Null without a calibration, if the calibration has no correctness model "
        "for this number of answers, if the model needs log-probabilities or a self-check that are missing "
        "(only a `candidate` is checked if there is one), and if `answer` is a refusal or the embedder "
        "cannot distinguish it from an answer that says something else (warning `indistinct_answers`)."
    )
    candidate: Candidate | None = Field(
        description="The judgement of the `candidate`. Null without a candidate."
    )
    self_check: float | None = Field(
        description="P(True): probability that the LLM replies Yes when asked whether the judged text, the "
        "`candidate` or `answer`, is correct, 0..1. Higher = more likely right. It is a feature of "
        "`probability_correct`, and by itself far too high. Null if the LLM was not asked, failed, or "
        "replied with neither Yes nor No.",
    )
    decision: Decision | None = Field(
        description="Decision on the `candidate` or, without one, on `answer`, for the target error. Null "
        "without a calibration, unless the answers are refusals. A calibration without a "
        "`probability_correct` for this score abstains."
    )
    lambda_max: float | None = Field(
        description="Largest served eigenvalue, 0..1: the confidence. Higher = more certain. It measures "
        "the share of meaning on which the answers agree, not the probability that the answer is right. "
        "Null without samples, like the other values of the spectrum."
    )
    entropy: float | None = Field(description="Served von Neumann entropy in nats. Higher = less certain.")
    entropy_normalized: float | None = Field(
        description="`entropy` divided by the largest entropy that the spectrum allows, 0..1. Higher = less "
        "certain."
    )
    calibrated: bool = Field(description="Whether a calibration was applied.")
    uncalibrated: SpectrumValues | None = Field(
        description="`lambda_max` and `entropy` without calibration. Null without samples."
    )
    calibration: CalibrationUsed | None = Field(description="The calibration used. Null: the values are raw.")
    ood_p_value: float | None = Field(
        description="Conformal p-value, 0..1, of the hypothesis that the prompt is like the calibration's "
        "rows. It compares the question and, with samples, their mean length. Lower = less similar. Below "
        "0.02 the score has a warning. The smallest possible value is 2 / (rows + 1) for the question and 4 "
        "/ (rows + 1) for the length, so with fewer than 200 rows the length alone cannot reach 0.02. "
        "Lengths that no row has then give the same warning. Null without a calibration, and for "
        "calibrations that do not keep the prompts of their rows."
    )
    evidence: Evidence | None = Field(
        description="Evidence from the log-probabilities. Null unless every answer has a log-probability."
    )
    warnings: list[ScoreWarning] = Field(description="Warnings about the score.")
    model: str | None = Field(
        description="Model that answered. Null for supplied samples, and for a supplied candidate without "
        "samples."
    )
    embedder: str = Field(description="Embedder of the answers.")
    kernel: Kernel | None = Field(
        None, description="Kernel that compared the answers; see `calibration.kernel`."
    )
    num_samples: int = Field(description="Number of answers scored.")
    num_distinct: int = Field(description="Number of distinct answers.")
    num_truncated: int = Field(description="Number of answers cut at `max_tokens`. They are scored.")
    num_empty: int = Field(description="Number of answers without text. They do not count.")
    num_refusals: int = Field(
        description="Number of drawn answers without content: refusals, placeholders (null), errors, "
        "punctuation, or the question itself. They count in the spectrum. If the judged text is a refusal, "
        "or more than half of the answers are, the decision is to abstain."
    )
    modes: list[Mode] | None = Field(None, description="The leading meanings, at most five.")
    samples: list[str] | None = Field(None, description="The answers in the order drawn.")
    claims: list[Claim] | None = Field(
        None,
        description="Claims of the `candidate` or, without one, of `answer`, in the order of the text. "
        "Present if the text is long or the request asks for claims, except with a single answer.",
    )
    claims_calibration: CalibrationUsed | None = Field(
        None, description="The calibration applied to the claims. Null: none. Present with `claims`."
    )
    usage: TokenUsage | None = Field(
        description="Tokens used, including comparisons and self-checks. Null if the LLM was not called."
    )
    timings_ms: Timings = Field(description="Duration of each stage in milliseconds.")

    # For gateways, which report them in their own formats.
    _num_agreeing: int = PrivateAttr(0)
    _unavailable_reason: str | None = PrivateAttr(None)
    _is_held_back: bool = PrivateAttr(False)

    @property
    def supported(self) -> bool:
        """Whether a sample supports the text decided about. True without a candidate or without samples."""
        return self.num_samples == 0 or self.candidate is None or self.candidate.mode is not None

    @property
    def decisive(self) -> float | None:
        """P(correct) of the text that a decision is about: the candidate where there is one."""
        return self.probability_correct if self.candidate is None else self.candidate.probability_correct

    @property
    def unavailable_reason(self) -> str | None:
        """Why there is no model of P(correct), in words; None if there is one."""
        return self._unavailable_reason

    @property
    def num_agreeing(self) -> int:
        """Number of samples that lie closest to the candidate's mode; 0 without a mode."""
        return self._num_agreeing

    @property
    def is_held_back(self) -> bool:
        """Whether the text is held back: it or most samples are refusals, or the embedder confuses it."""
        return self._is_held_back

    def document(self, parts: Collection[ScorePart] = ()) -> dict[str, Any]:
        """Return the score as a JSON object, with these optional parts."""
        return self.model_dump(mode="json", exclude_unset=True, exclude=set(PARTS.difference(parts)))

    def json_text(self, parts: Collection[ScorePart]) -> str:
        """Return the score as JSON text, with these optional parts."""
        return self.model_dump_json(exclude_unset=True, exclude=set(PARTS.difference(parts)))

    def headers(self) -> dict[str, str]:
        """Return the score's headers, for proxies that drop bodies."""
        headers = {"X-Score-ID": self.id}
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
    "X-Score-ID": {"description": "`id`.", "schema": {"type": "string"}},
    "X-Probability-Correct": {
        "description": "`probability_correct` of the `candidate` or, without one, of `answer`. Absent if it "
        "is null.",
        "schema": {"type": "number"},
    },
    "X-Decision": {
        "description": "`decision.action`: `answer` (let the text through) or `abstain` (hold it back). The "
        "text is the `candidate` or, without one, `answer`. Absent if `decision` is null.",
        "schema": {"type": "string", "enum": ["answer", "abstain"]},
    },
}
