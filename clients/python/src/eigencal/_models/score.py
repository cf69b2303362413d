"""A score as it is answered."""

from datetime import datetime
from typing import Literal

from eigencal._models.result import Result


class SpectrumValues(Result):
    """The two numbers of a spectrum."""

    entropy: float
    """Von Neumann entropy in nats. Higher = less certain."""
    lambda_max: float
    """Largest eigenvalue, 0..1. Higher = more certain."""


class CalibrationUsed(Result):
    """The calibration that the score used, with the parameters for its number of answers."""

    created_at: datetime
    """When it was fitted."""
    depolarization: float
    """Depolarisation g applied, 0 for `temperature`; with `evidence`, that of this very score."""
    evidence_intercept: float | None = None
    """With `evidence`: a of g = sigmoid(a + b logit u), u the missing mass."""
    evidence_slope: float | None = None
    """With `evidence`: b."""
    id: str
    """Id of the calibration."""
    method: Literal["depolarized", "temperature", "evidence"] | str
    """The map applied."""
    temperature: float
    """Matrix temperature T applied."""


class Evidence(Result):
    """What the log-probabilities of the answers say."""

    mean_logprob: float
    """Mean log-probability of the whole answers, nats. Higher = more certain."""
    missing_mass: float
    """Mass that the LLM gives to none of the answers, 0..1. Higher = less certain."""


class ScoreWarning(Result):
    """Something the caller should know."""

    code: str
    """calibration_missing, calibration_mismatch, evidence_missing, partial_samples, truncated_samples,
    indistinct_answers, no_correctness_model, target_unreachable, unsupported_candidate,
    correctness_label_mismatch or out_of_distribution."""
    differs: tuple[str, ...] | None = None
    """For a mismatch: the parts that differ."""
    message: str
    """The same for a person."""


class Candidate(Result):
    """What the answers say of the text given as `candidate`."""

    mode: int | None
    """The meaning that it belongs to: which eigenvalue, from 0, the largest; an index into `modes` as far as
    those go. Null where more of it lies outside of all answers than on any meaning: it says what none of
    them said."""
    probability: float
    """Its probability by Born's rule under the matrix served, 0..lambda_max. Higher = nearer to what the LLM
    means. Raw where `calibrated` is false."""
    probability_correct: float | None
    """Probability, 0..1, that the candidate is right. Null in the cases in which the `probability_correct` of
    the response is null, and where `mode` is null. Unlike `probability`, it rests on verdicts: on whether
    answers to the calibration's questions were right."""


class Decision(Result):
    """Whether to let a text through, so that few of those let through are wrong."""

    action: Literal["answer", "abstain"] | str
    """Let it through, or do not."""
    confidence: float
    """How sure the promise is, 0..1: of calibrations on other questions drawn likewise, at least this share
    keep the error at or below `target_error`. It says nothing of this one text, and less of a target that
    was chosen since it is barely reachable."""
    coverage: float
    """Share of the calibration's questions that is let through, 0..1; 0 where none is."""
    reason: str
    """Why, and what to do with the text, for a person."""
    target_error: float
    """Share of wrong ones allowed among those let through."""
    threshold: float | None
    """The least P(correct) that is let through; null where the target cannot be promised."""


class Mode(Result):
    """One latent meaning among the answers: an eigenvector of the density matrix."""

    answer: str
    """The sample most aligned with it."""
    probability: float
    """Its served eigenvalue, 0..1."""
    share: float
    """Share of the samples that lie closest to it, 0..1."""


class Spectrum(Result):
    """The whole spectrum."""

    eigenvalues: tuple[float, ...]
    """Served eigenvalues, descending."""
    null_count: int
    """Number of remaining directions."""
    null_value: float
    """Served eigenvalue of each remaining direction."""
    uncalibrated: tuple[float, ...]
    """Eigenvalues as they came, descending, sum 1."""


class Usage(Result):
    """Tokens, as the LLM server counts them."""

    completion_tokens: int
    """Tokens of all answers."""
    prompt_tokens: int
    """Tokens of the prompt."""


class Timings(Result):
    """Milliseconds by stage."""

    embed: float
    """Embedding the distinct answers."""
    generate: float | None = None
    """Drawing the answers; null for supplied samples."""
    queue: float
    """Waiting: for parsing and for a slot at the LLM."""
    spectrum: float
    """Spectrum, calibration and modes."""
    total: float
    """All of it."""


class Score(Result):
    """A scored prompt."""

    answer: str
    """The sample most aligned with the dominant eigenvector."""
    calibrated: bool
    """Whether a calibration that fits was applied."""
    calibration: CalibrationUsed | None
    """The calibration used; null: none."""
    candidate: Candidate | None
    """The `candidate` judged; null without one."""
    decision: Decision | None
    """What to do with the `candidate` or, without one, `answer`, to keep a target error; null where no
    calibration can decide and the request names no `target_error`. Without a `probability_correct`, as for a
    candidate whose `mode` is null: abstain."""
    embedder: str
    """Embedder of the answers."""
    entropy: float
    """Von Neumann entropy served, nats. Higher = less certain."""
    entropy_normalized: float
    """Entropy over the largest that the spectrum allows, 0..1."""
    evidence: Evidence | None
    """What the log-probabilities say; null unless every answer has one."""
    id: str
    """Id of this score."""
    lambda_max: float
    """Largest eigenvalue served, 0..1: the confidence. Higher = more certain. It is how much of their meaning
    the answers share, not the probability that the answer is right."""
    model: str | None
    """Model that answered; null for supplied samples."""
    modes: tuple[Mode, ...] | None = None
    """The leading meanings, at most five."""
    num_distinct: int
    """Distinct ones among them."""
    num_empty: int
    """Answers without text: left out as failed, unless the settings say what they mean."""
    num_samples: int
    """Answers scored."""
    num_truncated: int
    """Answers cut by max_tokens; they count."""
    ood_p_value: float | None
    """How like the calibration's rows the prompt is, 0..1: of prompts like them, at most this share look as
    unlike, by their question and by the length of their answers. Higher = more like. Below 0.02 a warning
    says so. Null where no calibration is applied, or one of a release before 0.3, which cannot tell."""
    probability_correct: float | None
    """Probability that `answer` is right, 0..1, by the verdicts on the calibration's questions. Null where no
    calibration is applied, where it has no model of being right for so many answers, or where the model
    takes log-probabilities that these lack."""
    samples: tuple[str, ...] | None = None
    """The answers, in the order drawn."""
    spectrum: Spectrum | None = None
    """The whole spectrum."""
    timings_ms: Timings
    """Where the time went."""
    uncalibrated: SpectrumValues
    """The same two numbers without calibration."""
    usage: Usage | None
    """Tokens used; null for supplied samples."""
    warnings: tuple[ScoreWarning, ...]
    """What to know about this score."""
