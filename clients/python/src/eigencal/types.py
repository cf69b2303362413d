# Made from clients/openapi.json by `make openapi-models`; changed there alone.
# ruff: noqa

from datetime import datetime
from typing import Any, Literal

from eigencal._result import Result


class Activation(Result):
    """An activation of a calibration."""

    activated_at: datetime
    """Time of the activation."""
    by: str
    """Author of the activation: the job's id; `key_…` and its name; `settings key`; `no key` if none was needed."""
    calibration_id: str
    """Id of the calibration."""
    fingerprint_key: str
    """Key of the set-up. One calibration is active for each key."""
    reason: str
    """Reason of the activation."""
    replaced: str | None
    """Id of the calibration that was active until then."""


class CalibrationUsed(Result):
    """The calibration that the score used, with the parameters for its number of answers."""

    created_at: datetime
    """Time of the fit."""
    depolarization: float | None
    """Depolarization g applied. 0 for `temperature`. For `evidence`: the g of this score. Null without samples."""
    evidence_intercept: float | None = None
    """For `evidence`: a of g = sigmoid(a + b logit u). u is the missing mass."""
    evidence_slope: float | None = None
    """For `evidence`: b of the same formula."""
    id: str
    """Id of the calibration."""
    kernel: Literal["facts", "llm", "paper"] | str
    """Kernel that compares the answers: `facts` (numbers, names, negation, wording), `llm` (facts and the LLM's judgement of each pair) or `paper` (cosine of the embeddings)."""
    method: Literal["depolarized", "temperature", "evidence"] | str
    """The map applied."""
    origin: Literal["own", "both", "bundled"] | str
    """`own`: your questions. `bundled`: those that the service asks each new LLM. `both`: fewer than 100 of yours, so promises also count the bundled ones."""
    temperature: float | None
    """Matrix temperature T applied. Null without samples."""


class Candidate(Result):
    """The judgement of the text sent as `candidate`."""

    mode: int | None
    """Index of the candidate's meaning. 0 is the largest eigenvalue. The index also applies to `modes` if `modes` is long enough. Null if a larger part of the candidate lies outside all answers than on any meaning: no answer supports it. Null without samples."""
    probability: float | None
    """Probability of the candidate by Born's rule under the served matrix, 0..lambda_max. Higher = closer to the LLM's meaning. Raw if `calibration` is null. Null without samples."""
    probability_correct: float | None
    """Probability that the candidate is right, 0..1. Null if `mode` is null although there are samples, and in the cases listed for `probability_correct` of the response. Unlike `probability`, it is estimated from verdicts on answers to the calibration's questions, if there are any."""


class ClaimSupport(Result):
    """Number of samples that support a claim, differ from it or do not mention it."""

    agree: int
    """Number of answers with the same meaning."""
    differ: int
    """Number of answers that mention the subject but mean something else."""
    example: str | None
    """Sentence of an answer that differs: the one least similar to the claim. Null if no answer differs."""
    silent: int
    """Number of answers that do not mention the subject."""


class Claim(Result):
    """One claim of a long answer: a sentence, a list item, a table row or a field of JSON."""

    decision: Literal["answer", "abstain"] | None
    """`answer`: let the claim through. `abstain`: hold it back. The target error holds for one random claim of each answer: few of those let through are wrong. Null if no calibration of claims can decide."""
    doubtful: bool | None
    """Whether a reader should doubt the claim. True if `decision` is `abstain`; without a decision, if `probability_correct` is below 0.5; without both, if no sample agrees. Null if none of the three is known."""
    end: int
    """End of the claim in the same text, exclusive."""
    entropy: float | None
    """Served von Neumann entropy in nats. Higher = less certain."""
    fact_logprob: float | None
    """Log-probability of the claim's numbers and names in nats, without those of the question. If it has none: of its other words."""
    lambda_max: float | None
    """Largest served eigenvalue of the answers' statements on the claim, 0..1. Higher = more agreement. Null without samples, like `entropy`, `probability` and `support`."""
    least_logprob: float | None
    """Log-probability of the least likely token among those of `fact_logprob`, in nats."""
    logprob: float | None
    """Log-probability of all tokens of the claim in nats. Higher = more certain. Null if it is unknown."""
    probability: float | None
    """Probability of the claim by Born's rule under the served matrix, 0..lambda_max. Higher = closer to the meaning of the answers."""
    probability_correct: float | None
    """Probability that the claim is right, 0..1, estimated from the verdicts on claims in the calibration's rows. Null without such a calibration, and if no answer mentions the claim."""
    start: int
    """Start of the claim in the judged text (for chats: in the text of the choice), in characters (code points)."""
    support: ClaimSupport | None
    """Number of samples that agree, differ or are silent. Null without samples."""
    text: str
    """Text of the claim without Markdown markup. For JSON: `path: value`."""


class Decision(Result):
    """The decision to let a text through or hold it back. It limits the share of wrong texts let through."""

    action: Literal["answer", "abstain"] | str
    """`answer`: let the text through. `abstain`: hold it back."""
    confidence: float
    """Confidence level of the promise, 0..1. At least this share of calibrations, on other questions drawn in the same way, keeps every error that it promises for this number of answers, all at once. `target_error` may therefore be chosen after looking at the errors that can be promised. The level does not describe this single text."""
    coverage: float | None
    """Share of the calibration's questions that are let through, 0..1. 0 if none is let through."""
    reason: str
    """Reason and advice in plain English."""
    target_error: float
    """Largest share of wrong texts among those let through, 0..1."""
    threshold: float | None
    """Smallest P(correct) that is let through. Null if the target cannot be promised."""


class Evidence(Result):
    """Evidence from the log-probabilities of the answers."""

    mean_logprob: float
    """Mean log-probability of a whole answer in nats. Higher = more certain."""
    missing_mass: float
    """Probability that the LLM assigns to answers other than the samples, 0..1. Higher = less certain."""


class EvidenceParameters(Result):
    """Evidence map for this number of answers: g = sigmoid(a + b logit u). u is the missing mass."""

    evidence_intercept: float
    """Intercept a."""
    evidence_slope: float
    """Slope b, 0 or more. 0: the evidence has no effect."""
    num_samples: int
    """Number of answers."""
    temperature: float
    """Matrix temperature T."""


class Health(Result):
    """The process is running."""

    status: Literal["ok"] | str
    """ok: the process responds."""
    version: str
    """Version of the service."""


class JobError(Result):
    """The reason for a job's failure."""

    code: str
    """Code from the error table."""
    detail: str
    """Explanation in plain English."""


class Job(Result):
    """A job."""

    activated: bool | None
    """Whether the calibration became the active one of its set-up. Null before that is decided."""
    calibration_id: str | None
    """Id of the calibration that the job made."""
    created_at: datetime
    """Time of the request."""
    decision: str | None
    """Verdict on the use of the calibration (the first words of its report), and the reason why it was activated or not."""
    done: int
    """Number of completed units of the stage."""
    error: JobError | None
    """Reason for the failure. Null without a failure."""
    eta_s: float | None
    """Estimated remaining seconds of the stage. Null: unknown."""
    finished_at: datetime | None
    """Time of the end."""
    id: str
    """Id of the job."""
    kind: Literal["calibrate"] | str
    """Kind of the job."""
    links: dict[str, str]
    """Paths: `self`. After success also `report` and `calibration`."""
    name: str
    """Name of the job."""
    note: str
    """Reason why an open job waits. Empty if it does not."""
    refused_rows: int
    """Number of rows that the LLM server refused while it answered others. Known once the job has ended. Retry the job to ask for them again."""
    stage: Literal["sampling", "embedding", "comparing", "checking", "fitting", "reporting"] | None
    """Current stage of a running job."""
    started_at: datetime | None
    """Time of the first run."""
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"] | str
    """State of the job. The last three are final, except that a failed job can be retried."""
    total: int
    """Total number of units of the stage."""


class Key(Result):
    """A key without its secret."""

    created_at: datetime
    """Time of creation."""
    expires_at: datetime | None
    """Expiry time. Null: valid until it is revoked."""
    id: str
    """Id of the key."""
    name: str
    """Name of the key."""
    prefix: str
    """First characters of the key, to recognise it."""
    revoked_at: datetime | None
    """Time of revocation. Null if it is not revoked."""
    scope: Literal["score", "admin"] | str
    """Routes that the key opens: `score` or `admin`."""
    state: Literal["valid", "expired", "revoked"] | str
    """State of the key. Only a valid key opens routes."""


class KeyWarning(Result):
    """A warning about a created key."""

    code: str
    """scope_closed: this is the first key of its scope. Callers without a key are now refused."""
    message: str
    """Explanation in plain English."""


class Mark(Result):
    """A claim in the text of a chat's answer, for display to the reader."""

    doubtful: bool | None
    """Whether to display the claim as doubtful: `doubtful` of the claim."""
    end: int
    """End of the claim in the same text, exclusive."""
    start: int
    """Start of the claim in the text of the choice, in characters (code points)."""
    text: str
    """Text of the claim."""
    why: str | None
    """Reason in plain English. Null if the claim is not doubtful."""


class Mode(Result):
    """One latent meaning among the answers: an eigenvector of the density matrix."""

    answer: str
    """The sample most aligned with this meaning."""
    probability: float
    """Served eigenvalue, 0..1."""
    samples: tuple[int, ...]
    """Positions of the samples that lie closest to this meaning, in the order drawn, from 0."""
    share: float
    """Share of the samples that lie closest to this meaning, 0..1."""


class NewKey(Result):
    """A new key. Only this response contains the key itself."""

    created_at: datetime
    """Time of creation."""
    expires_at: datetime | None
    """Expiry time. Null: valid until it is revoked."""
    id: str
    """Id of the key."""
    key: str
    """The key. It is shown only once and not stored."""
    name: str
    """Name of the key."""
    prefix: str
    """First characters of the key, to recognise it."""
    revoked_at: datetime | None
    """Time of revocation. Null if it is not revoked."""
    scope: Literal["score", "admin"] | str
    """Routes that the key opens: `score` or `admin`."""
    state: Literal["valid", "expired", "revoked"] | str
    """State of the key. Only a valid key opens routes."""
    warnings: tuple[KeyWarning, ...]
    """Warnings about the created key."""


class Parameters(Result):
    """Parameters applied to this number of answers."""

    depolarization: float
    """Depolarization g. 0 for `temperature`."""
    num_samples: int
    """Number of answers."""
    temperature: float
    """Matrix temperature T."""


class ProblemItem(Result):
    """One fault of the request."""

    loc: tuple[str | int, ...]
    """Place of the fault: body, query or path, then the field."""
    msg: str
    """Description of the fault."""


class Problem(Result):
    """An error (RFC 9457)."""

    code: str
    """Stable code of the error, for programs."""
    detail: str
    """Explanation in plain English."""
    errors: tuple[ProblemItem, ...] | None = None
    """For invalid requests: the list of faults."""
    request_id: str | None = None
    """Id of the request, also in the header `X-Request-ID`."""
    retryable: bool
    """Whether the same request may succeed later."""
    status: int
    """The HTTP status."""
    title: str
    """Name of the HTTP status."""
    type: str
    """Kind of the error. All errors with the same code have the same type."""


class Promise(Result):
    """An error rate that is promised for the answers let through."""

    confidence: float
    """Confidence level of the promise, 0..1."""
    coverage: float
    """Share of the questions that are let through, 0..1."""
    num_samples: int
    """Number of answers per prompt for which the promise holds."""
    target_error: float
    """Largest share of wrong answers among those let through, 0..1."""
    threshold: float
    """Smallest P(correct) that is let through."""


class Calibration(Result):
    """A calibration. The fit does not change; `active`, `applies_now`, `data_kept` and `promise` can."""

    activated_at: datetime | None
    """Time of the activation. Null if it is not active."""
    active: bool
    """Whether the calibration is applied to requests with its fingerprint."""
    applies_now: bool
    """Whether the calibration fits the current set-up: the LLM, its sampling and the embedder. For a caller's own answers: the embedder."""
    correctness_sample_counts: tuple[int, ...]
    """Numbers of answers for which the calibration has P(correct) and thresholds. Empty if the verdicts on its rows are not sufficient. The report gives the reason."""
    created_at: datetime
    """Time of the fit."""
    data_kept: bool
    """Whether the rows are still stored."""
    depolarization: float
    """Depolarization g at the full number of answers. 0 for `temperature`."""
    eps: float
    """Null eigenvalue used to fit `temperature`."""
    evidence: tuple[EvidenceParameters, ...] | None
    """For `evidence`: parameters for every number of answers from 1. Null for other methods."""
    fingerprint: dict[str, Any]
    """The set-up that the calibration is bound to, part by part."""
    fingerprint_key: str
    """Short hash of the fingerprint. One calibration is active per key."""
    id: str
    """Id of the calibration."""
    job_id: str | None
    """Id of the job that made the calibration."""
    links: dict[str, str]
    """Paths: `self`, `report` and `activate`. Also `data` if the rows are stored."""
    method: Literal["depolarized", "temperature", "evidence"] | str
    """Map that the calibration applies."""
    name: str
    """Name of the calibration."""
    num_samples: int
    """The full number of answers: the number drawn per prompt for the fit."""
    origin: Literal["bundled", "both", "own"] | str
    """`own`: your questions. `bundled`: those that the service asks each new LLM. `both`: fewer than 100 of yours, so promises also count the bundled ones."""
    parameters: tuple[Parameters, ...]
    """Parameters for every number of answers from 2. For `evidence`: the parameters for answers without log-probabilities."""
    projection_ece: float | None
    """Projection ECE on held-out rows, 0..1: the gap between `lambda_max` and the observed projection."""
    promise: Promise | None
    """The promise of a decision with the recommended number of answers, for the configured target error (0.2 if not set). If this error cannot be promised: for the lowest possible error with this number of answers or, if it allows no promise, with another. Null if no error can be promised."""
    raw_projection_ece: float | None
    """Projection ECE of raw scores on the held-out rows, 0..1."""
    rows: int
    """Number of rows used in the fit."""
    temperature: float
    """Matrix temperature T at the full number of answers. For `evidence`: T for answers without log-probabilities."""


class Ready(Result):
    """All parts work."""

    parts: dict[str, Literal["ok"]]
    """State by part: store, embedder and llm."""
    status: Literal["ready"] | str
    """ready: prompts can be scored."""
    unreadable: tuple[str, ...] | None = None
    """Stored rows that cannot be read, by table and id. They are skipped."""


class ScoreWarning(Result):
    """A warning about the score."""

    code: str
    """Code of the warning: calibration_missing, calibration_mismatch, bundled_questions, evidence_missing, comparison_missing, self_check_missing, truncated_samples, indistinct_answers, out_of_distribution or claims_left_out."""
    differs: tuple[str, ...] | None = None
    """For `calibration_mismatch`: the parts of the set-up that differ."""
    message: str
    """Explanation in plain English."""


class SpectrumValues(Result):
    """Largest eigenvalue and entropy of a spectrum."""

    entropy: float
    """Von Neumann entropy in nats. Higher = less certain."""
    lambda_max: float
    """Largest eigenvalue, 0..1. Higher = more certain."""


class Timings(Result):
    """Duration of each stage in milliseconds."""

    compare: float | None = None
    """Comparison of answers by the LLM, after `embed`. Null if the LLM was not asked."""
    embed: float
    """Embedding the distinct answers and the question."""
    generate: float | None = None
    """Drawing the answers. Null if the service drew none."""
    queue: float
    """Waiting for parsing and for a slot at the LLM."""
    self_check: float | None = None
    """Wait for self-checks, after all other calls. Null if the LLM was not asked."""
    spectrum: float
    """Spectrum, calibration, modes and claims."""
    total: float
    """Total time."""


class Usage(Result):
    """Token counts of the LLM server."""

    completion_tokens: int
    """Tokens of all answers."""
    prompt_tokens: int
    """Tokens of the prompt."""


class KeptScore(Result):
    """A stored score and its state. Further fields are those of POST /score or of the chat's score."""

    id: str
    """Id of the score."""
    marks: tuple[Mark, ...] | None = None
    """The claims of a chat's answer, for display to the reader. Present if the chat asked for marks."""
    status: Literal["pending", "scored", "not_scored", "failed"] | str
    """pending: ask again later. scored: all fields that POST /score returned are present. not_scored, failed: `warning` gives the reason."""
    answer: str | None = None
    calibrated: bool | None = None
    calibration: CalibrationUsed | None = None
    candidate: Candidate | None = None
    claims: tuple[Claim, ...] | None = None
    claims_calibration: CalibrationUsed | None = None
    decision: Decision | None = None
    embedder: str | None = None
    entropy: float | None = None
    entropy_normalized: float | None = None
    evidence: Evidence | None = None
    kernel: Literal["facts", "llm", "paper"] | None = None
    lambda_max: float | None = None
    model: str | None = None
    modes: tuple[Mode, ...] | None = None
    num_distinct: int | None = None
    num_empty: int | None = None
    num_refusals: int | None = None
    num_samples: int | None = None
    num_truncated: int | None = None
    ood_p_value: float | None = None
    probability_correct: float | None = None
    samples: tuple[str, ...] | None = None
    self_check: float | None = None
    timings_ms: Timings | None = None
    uncalibrated: SpectrumValues | None = None
    usage: Usage | None = None
    warnings: tuple[ScoreWarning, ...] | None = None
    warning: ScoreWarning | None = None
    """Of not_scored and failed: why there is no score."""
    withheld: str | None = None
    """The model's own answer, where a decision to abstain has replaced it."""


class Score(Result):
    """The score of a prompt."""

    answer: str
    """The sample most aligned with the dominant eigenvector. Without samples: the `candidate`."""
    calibrated: bool
    """Whether a calibration was applied."""
    calibration: CalibrationUsed | None
    """The calibration used. Null: the values are raw."""
    candidate: Candidate | None
    """The judgement of the `candidate`. Null without a candidate."""
    claims: tuple[Claim, ...] | None = None
    """Claims of the `candidate` or, without one, of `answer`, in the order of the text. Present if the text is long or the request asks for claims, except with a single answer."""
    claims_calibration: CalibrationUsed | None = None
    """The calibration applied to the claims. Null: none. Present with `claims`."""
    decision: Decision | None
    """Decision on the `candidate` or, without one, on `answer`, for the target error. Null without a calibration, unless the answers are refusals. A calibration without a `probability_correct` for this score abstains."""
    embedder: str
    """Embedder of the answers."""
    entropy: float | None
    """Served von Neumann entropy in nats. Higher = less certain."""
    entropy_normalized: float | None
    """`entropy` divided by the largest entropy that the spectrum allows, 0..1. Higher = less certain."""
    evidence: Evidence | None
    """Evidence from the log-probabilities. Null unless every answer has a log-probability."""
    id: str
    """Id of the score."""
    kernel: Literal["facts", "llm", "paper"] | None = None
    """Kernel that compared the answers; see `calibration.kernel`."""
    lambda_max: float | None
    """Largest served eigenvalue, 0..1: the confidence. Higher = more certain. It measures the share of meaning on which the answers agree, not the probability that the answer is right. Null without samples, like the other values of the spectrum."""
    model: str | None
    """Model that answered. Null for supplied samples, and for a supplied candidate without samples."""
    modes: tuple[Mode, ...] | None = None
    """The leading meanings, at most five."""
    num_distinct: int
    """Number of distinct answers."""
    num_empty: int
    """Number of answers without text. They do not count."""
    num_refusals: int
    """Number of drawn answers without content: refusals, placeholders (null), errors, punctuation, or the question itself. They count in the spectrum. If the judged text is a refusal, or more than half of the answers are, the decision is to abstain."""
    num_samples: int
    """Number of answers scored."""
    num_truncated: int
    """Number of answers cut at `max_tokens`. They are scored."""
    ood_p_value: float | None
    """Conformal p-value, 0..1, of the hypothesis that the prompt is like the calibration's rows. It compares the question and, with samples, their mean length. Lower = less similar. Below 0.02 the score has a warning. The smallest possible value is 2 / (rows + 1) for the question and 4 / (rows + 1) for the length, so with fewer than 200 rows the length alone cannot reach 0.02. Lengths that no row has then give the same warning. Null without a calibration, and for calibrations that do not keep the prompts of their rows."""
    probability_correct: float | None
    """Probability that `answer` is right, 0..1, estimated from the verdicts on the calibration's questions. Null without a calibration, if the calibration has no correctness model for this number of answers, if the model needs log-probabilities or a self-check that are missing (only a `candidate` is checked if there is one), and if `answer` is a refusal or the embedder cannot distinguish it from an answer that says something else (warning `indistinct_answers`)."""
    samples: tuple[str, ...] | None = None
    """The answers in the order drawn."""
    self_check: float | None
    """P(True): probability that the LLM replies Yes when asked whether the judged text, the `candidate` or `answer`, is correct, 0..1. Higher = more likely right. It is a feature of `probability_correct`, and by itself far too high. Null if the LLM was not asked, failed, or replied with neither Yes nor No."""
    timings_ms: Timings
    uncalibrated: SpectrumValues | None
    """`lambda_max` and `entropy` without calibration. Null without samples."""
    usage: Usage | None
    """Tokens used, including comparisons and self-checks. Null if the LLM was not called."""
    warnings: tuple[ScoreWarning, ...]
    """Warnings about the score."""


class Verified(Result):
    """The verdict on the answer."""

    claims: tuple[Claim, ...] | None = None
    """Claims of a long answer, as in POST /score. Null for a short answer."""
    confidence: float
    """Calibrated probability that the answer is right, 0..1. It is 0 for a refusal, and for an answer that no drawn answer supports."""
    samples: tuple[str, ...]
    """The answers in the order drawn."""
    should_escalate: bool
    """True if the confidence is below the threshold, or if most drawn answers are refusals."""
    threshold: float
    """Threshold of the request."""
    total_samples: int
    """Number of answers drawn."""
    verified_count: int
    """Number of drawn answers on the mode of the judged answer: they are closest to the same eigenvector of the density matrix, so they have the same meaning. 0 if the answer belongs to no mode."""
