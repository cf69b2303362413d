# Made from clients/openapi.json by `make openapi-models`; changed there alone.
# ruff: noqa

from datetime import datetime
from typing import Any, Literal

from eigencal._result import Result


class Activation(Result):
    """An activation of a calibration."""

    activated_at: datetime
    """When it came into force."""
    by: str
    """Who activated it: the job's id; `key_…` and its name; `settings key`; `no key` where none was needed; empty for those of before 0.3.0."""
    calibration_id: str
    """Id of the calibration."""
    fingerprint_key: str
    """The set-up: one calibration is in force for each."""
    reason: str
    """Why; empty for those of before 0.3.0."""
    replaced: str | None
    """The calibration that was in force until then."""


class CalibrationUsed(Result):
    """The calibration that the score used, with the parameters for its number of answers."""

    created_at: datetime
    """When it was fitted."""
    depolarization: float | None
    """Depolarization g applied, 0 for `temperature`; with `evidence`, that of this very score. Null where no answer was drawn."""
    evidence_intercept: float | None = None
    """With `evidence`: a of g = sigmoid(a + b logit u), u the missing mass."""
    evidence_slope: float | None = None
    """With `evidence`: b."""
    id: str
    """Id of the calibration."""
    kernel: Literal["facts", "llm", "paper"] | str
    """What it compares answers by: `facts`, what they say; `llm`, that and what the LLM says of each two; `paper`, the cosine of their embeddings."""
    method: Literal["depolarized", "temperature", "evidence"] | str
    """The map applied."""
    origin: Literal["own", "default"] | str
    """`own`: fitted for this very set-up. `default`: packaged, for want of such a one."""
    temperature: float | None
    """Matrix temperature T applied; null where no answer was drawn."""


class Candidate(Result):
    """What the answers say of the text given as `candidate`."""

    mode: int | None
    """The meaning that it belongs to: which eigenvalue, from 0, the largest; an index into `modes` as far as those go. Null where more of it lies outside of all answers than on any meaning: it says what none of them said; and where no answer was drawn."""
    probability: float | None
    """Its probability by Born's rule under the matrix served, 0..lambda_max. Higher = nearer to what the LLM means. Raw where `calibration` is null; null where no answer was drawn."""
    probability_correct: float | None
    """Probability, 0..1, that the candidate is right. Null in the cases in which the `probability_correct` of the response is null, where `mode` is null, and for a refusal. Unlike `probability`, it rests on verdicts, if there are any: on whether answers to the calibration's questions were right."""


class ClaimSupport(Result):
    """How many of the answers drawn say what a claim says."""

    agree: int
    """Answers that mean the same."""
    differ: int
    """Answers that speak of it and mean something else."""
    example: str | None
    """What is said instead by an answer that differs, the least like it; null for none."""
    silent: int
    """Answers that do not speak of it."""


class Claim(Result):
    """One claim of a long answer: a sentence, a list item, a row of a table, or a field of JSON."""

    decision: Literal["answer", "abstain"] | None
    """Let the claim through, or do not, so that of one claim of each answer, taken at random, few of those let through are wrong; null where no calibration of claims can decide."""
    doubtful: bool | None
    """Whether a reader should doubt it: where the `decision` is to abstain; without one, where `probability_correct` is below 0.5; without that, too, where none of the answers drawn agrees. Null where nothing tells."""
    end: int
    """Where it ends."""
    entropy: float | None
    """Von Neumann entropy served, nats. Higher = less certain."""
    fact_logprob: float | None
    """That of the tokens of its numbers and names alone, without those of the question; where it has none, of its other words."""
    lambda_max: float | None
    """Largest eigenvalue served of what the answers say of it, 0..1. Higher = they agree more. Null where no answer was drawn, as are the next two and `support`."""
    least_logprob: float | None
    """That of the least likely of these tokens."""
    logprob: float | None
    """Log-probability of all its tokens, nats. Higher = more certain. Null where they are not known."""
    probability: float | None
    """Its probability by Born's rule under the matrix served, 0..lambda_max. Higher = nearer to what the answers mean."""
    probability_correct: float | None
    """Probability that the claim is right, 0..1, by the verdicts on claims of the calibration's rows. Null without such a calibration, and where no answer speaks of the claim."""
    rank_score: float | None
    """A number to sort claims by, 0..1, where no calibration of claims serves: `probability` or, where no answer was drawn, the probability of its least likely token. Higher = more likely right, but no probability of that. Null elsewhere, and where no answer speaks of the claim."""
    start: int
    """Where it begins in the judged text (of a chat: in that of its choice), in characters (code points)."""
    support: ClaimSupport | None
    """What the answers drawn say of it."""
    text: str
    """What it says, without Markdown's marks; of JSON `path: value`."""


class Decision(Result):
    """Whether to let a text through, so that few of those let through are wrong."""

    action: Literal["answer", "abstain"] | str
    """Let it through, or do not."""
    confidence: float
    """How sure the promise is, 0..1: of calibrations on other questions drawn likewise, at least this share keep every error that they promise for this number of answers, all at once. So `target_error` may be chosen after looking at what is reachable. It says nothing of this one text."""
    coverage: float | None
    """Share of the calibration's questions that is let through, 0..1; 0 where none is. Null where the default calibration decides, which promises nothing."""
    reason: str
    """Why, and what to do with the text, for a person."""
    target_error: float
    """Share of wrong ones allowed among those let through."""
    threshold: float | None
    """The least P(correct) that is let through; null where the target cannot be promised."""


class DisagreementValue(Result):
    """What some of the answers say."""

    share: float
    """Share of the answers with content that say it, 0..1."""
    value: str
    """As one of the answers writes it; `negated` or `not negated`."""


class Disagreement(Result):
    """What answers say instead of one another."""

    kind: Literal["number", "name", "negation"] | str
    """Numbers are compared with those of the same unit, names only between answers that have none in common."""
    values: tuple[DisagreementValue, ...]
    """The values by share, largest first, at most ten. The shares need not add up to 1: an answer may say nothing of it."""


class Evidence(Result):
    """What the log-probabilities of the answers say."""

    mean_logprob: float
    """Mean log-probability of the whole answers, nats. Higher = more certain."""
    missing_mass: float
    """Mass that the LLM gives to none of the answers, 0..1. Higher = less certain."""


class EvidenceParameters(Result):
    """The evidence map served with this number of answers: g = sigmoid(a + b logit u), u the missing mass."""

    evidence_intercept: float
    """Intercept a."""
    evidence_slope: float
    """Slope b, 0 or more; 0: the evidence says nothing."""
    num_samples: int
    """Number of answers."""
    temperature: float
    """Matrix temperature T."""


class Health(Result):
    """The process is up."""

    status: str
    """ok: the process answers."""
    version: str
    """Version of the service."""


class JobError(Result):
    """Why a job failed."""

    code: str
    """A code of the error table."""
    detail: str
    """The same for a person."""


class Job(Result):
    """A job."""

    activated: bool | None
    """Whether that one became the active one of its set-up; null before, and of an evaluation."""
    calibration_id: str | None
    """The calibration that it made."""
    created_at: datetime
    """When it was posted."""
    decision: str | None
    """Whether the calibration may be used, in a word or two as its report begins, and why it was activated or not."""
    done: int
    """Units of the stage that are done."""
    error: JobError | None
    """Why it failed."""
    eta_s: float | None
    """Seconds that the stage will still take; null: not known."""
    finished_at: datetime | None
    """When it ended."""
    id: str
    """Id of the job."""
    kind: Literal["calibrate", "evaluate"] | str
    """What it does."""
    links: dict[str, str]
    """Paths: `self`, `events`; once it has succeeded `report` and, if any, `calibration`."""
    name: str
    """The name given to it."""
    note: str
    """What an open job waits for, if it does."""
    refused_rows: int
    """Rows that the LLM server refused while it answered others, once the job has ended; retry it to ask for them again."""
    stage: Literal["sampling", "comparing", "embedding", "fitting", "reporting"] | None
    """What a running job is at."""
    started_at: datetime | None
    """When it first ran."""
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"] | str
    """Where it stands; the last three are final, but that a failed job can be retried."""
    total: int
    """Units of the stage in all."""


class Key(Result):
    """A key, but for the key itself."""

    created_at: datetime
    """When it was made."""
    expires_at: datetime | None
    """When it ends; null: when it is revoked."""
    id: str
    """Id of the key."""
    name: str
    """The name given to it."""
    prefix: str
    """Its first characters, by which to know it."""
    revoked_at: datetime | None
    """When it was revoked."""
    scope: Literal["score", "admin"] | str
    """What it opens."""
    state: Literal["valid", "expired", "revoked"] | str
    """Whether it opens anything: only a valid one does."""


class KeyWarning(Result):
    """What to know about having made a key."""

    code: str
    """scope_closed: it is the first key, and callers without one are now refused."""
    message: str
    """The same in words."""


class Mark(Result):
    """A claim in the text of a chat's answer, for the reader of the chat."""

    doubtful: bool | None
    """Whether to show it as doubtful, as of the claim."""
    end: int
    """Where it ends."""
    start: int
    """Where it begins in the text of the choice, in characters (code points)."""
    text: str
    """What it says, as of the claim."""
    why: str | None
    """What tells against it, in a reader's words; null where it is not doubtful."""


class Mode(Result):
    """One latent meaning among the answers: an eigenvector of the density matrix."""

    answer: str
    """The sample most aligned with it."""
    probability: float
    """Its served eigenvalue, 0..1."""
    share: float
    """Share of the samples that lie closest to it, 0..1."""


class NewKey(Result):
    """A key that was made now: the only answer that holds the key itself."""

    created_at: datetime
    """When it was made."""
    expires_at: datetime | None
    """When it ends; null: when it is revoked."""
    id: str
    """Id of the key."""
    key: str
    """The key. It is shown this once and stored nowhere."""
    name: str
    """The name given to it."""
    prefix: str
    """Its first characters, by which to know it."""
    revoked_at: datetime | None
    """When it was revoked."""
    scope: Literal["score", "admin"] | str
    """What it opens."""
    state: Literal["valid", "expired", "revoked"] | str
    """Whether it opens anything: only a valid one does."""
    warnings: tuple[KeyWarning, ...]
    """What to know about having made it."""


class Parameters(Result):
    """The parameters served with this number of answers."""

    depolarization: float
    """Depolarization g, 0 for `temperature`."""
    num_samples: int
    """Number of answers."""
    temperature: float
    """Matrix temperature T."""


class ProblemItem(Result):
    """One thing that is wrong with the request."""

    loc: tuple[str | int, ...]
    """Where: body, query or path, then the field."""
    msg: str
    """What is wrong there."""


class Problem(Result):
    """An error (RFC 9457)."""

    code: str
    """What went wrong, for a program: stable."""
    detail: str
    """What went wrong, for a person."""
    errors: tuple[ProblemItem, ...] | None = None
    """For invalid requests: each thing wrong."""
    request_id: str | None = None
    """The request's id, also in X-Request-ID."""
    retryable: bool
    """Whether the same request may succeed later."""
    status: int
    """The HTTP status."""
    title: str
    """The HTTP status in words."""
    type: str
    """Names the kind of error; the same for every error of one code."""


class Promise(Result):
    """An error among the answers let through that is kept with this confidence."""

    confidence: float
    """Confidence with which it is kept."""
    coverage: float
    """Share of the questions that it lets through."""
    num_samples: int
    """Number of answers per prompt that it is made for."""
    target_error: float
    """Share of wrong ones among the answers let through, at most."""
    threshold: float
    """The least P(correct) that is let through."""


class Calibration(Result):
    """A calibration: immutable but for `active`, `activated_at` and `data_kept`."""

    activated_at: datetime | None
    """Since when."""
    active: bool
    """Whether requests of its fingerprint are served with it."""
    applies_now: bool
    """Whether it fits the set-up as it is now: the LLM, its sampling and the embedder; of a caller's own answers, the embedder."""
    correctness_sample_counts: tuple[int, ...]
    """Numbers of answers for which it has P(correct) and thresholds; empty where the verdicts on its rows allow none. Its report says why."""
    created_at: datetime
    """When it was fitted."""
    data_kept: bool
    """Whether those rows are still there."""
    depolarization: float
    """Depolarization g there, 0 for `temperature`."""
    eps: float
    """Null eigenvalue with which `temperature` was fitted."""
    evidence: tuple[EvidenceParameters, ...] | None
    """For `evidence`, of every number of answers from 1 on; null for the others."""
    fingerprint: dict[str, Any]
    """What it is bound to, part by part."""
    fingerprint_key: str
    """Short hash of the fingerprint; one is active per key."""
    id: str
    """Id of the calibration."""
    job_id: str | None
    """The job that made it."""
    links: dict[str, str]
    """Paths: `self`, `report`, `activate`; `data` while its rows are kept."""
    method: Literal["depolarized", "temperature", "evidence"] | str
    """Its map."""
    name: str
    """The name given to it."""
    num_samples: int
    """The full number of answers: those drawn per prompt."""
    parameters: tuple[Parameters, ...]
    """For every number of answers from 2 on; for `evidence`, those of answers without log-probabilities."""
    projection_ece: float | None
    """Gap between lambda_max and what is found, on held-out rows; null where it was fitted by an earlier release."""
    promise: Promise | None
    """What a decision with all its answers promises: at the configured target error, or where that cannot be promised or none is set, at the lowest that can be; null where none can."""
    rows: int
    """Rows it was fitted on."""
    temperature: float
    """Matrix temperature T at the full number of answers; for `evidence`, without log-probabilities."""


class Ready(Result):
    """Every part works."""

    parts: dict[str, str]
    """By part: store, embedder, llm."""
    status: str
    """ready: prompts can be scored."""
    unreadable: tuple[str, ...] | None = None
    """Stored rows that cannot be read and are skipped: table and id."""


class ScoreWarning(Result):
    """Something the caller should know."""

    code: str
    """calibration_missing, calibration_mismatch, default_calibration, default_probability, evidence_missing, comparison_missing, partial_samples, truncated_samples, indistinct_answers, no_correctness_model, target_unreachable, unsupported_candidate, correctness_label_mismatch, out_of_distribution, length_out_of_range, refusals, logprobs_of_other_text or claims_left_out."""
    differs: tuple[str, ...] | None = None
    """For a mismatch: the parts that differ."""
    message: str
    """The same for a person."""


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


class SpectrumValues(Result):
    """The two numbers of a spectrum."""

    entropy: float
    """Von Neumann entropy in nats. Higher = less certain."""
    lambda_max: float
    """Largest eigenvalue, 0..1. Higher = more certain."""


class Timings(Result):
    """Milliseconds by stage."""

    compare: float | None = None
    """Comparing the answers by the LLM, after `embed`; null where it was not asked."""
    embed: float
    """Embedding the distinct answers, and the question."""
    generate: float | None = None
    """Drawing the answers; null where none was drawn."""
    queue: float
    """Waiting: for parsing and for a slot at the LLM."""
    spectrum: float
    """Spectrum, calibration and modes."""
    total: float
    """All of it."""


class Usage(Result):
    """Tokens, as the LLM server counts them."""

    completion_tokens: int
    """Tokens of all answers."""
    prompt_tokens: int
    """Tokens of the prompt."""


class KeptScore(Result):
    """A score as it was answered, and how far it is; further fields as of POST /score or of the answer."""

    id: str
    """Id of this score."""
    marks: tuple[Mark, ...] | None = None
    """Of a chat that asked for them: its `claims`, for the reader. Absent elsewhere."""
    status: Literal["pending", "scored", "not_scored", "failed"] | str
    """pending: ask again. scored: with everything that POST /score returned. not_scored, failed: `warning` says why."""
    answer: str | None = None
    calibrated: bool | None = None
    calibration: CalibrationUsed | None = None
    candidate: Candidate | None = None
    claims: tuple[Claim, ...] | None = None
    claims_calibration: CalibrationUsed | None = None
    claims_share: float | None = None
    decision: Decision | None = None
    disagreements: tuple[Disagreement, ...] | None = None
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
    probability_all_correct: float | None = None
    probability_correct: float | None = None
    rank_score: float | None = None
    samples: tuple[str, ...] | None = None
    spectrum: Spectrum | None = None
    timings_ms: Timings | None = None
    uncalibrated: SpectrumValues | None = None
    usage: Usage | None = None
    warnings: tuple[ScoreWarning, ...] | None = None
    warning: ScoreWarning | None = None
    """Of not_scored and failed: why there is no score."""
    withheld: str | None = None
    """The model's own answer, where a decision to abstain has replaced it."""


class Score(Result):
    """A scored prompt."""

    answer: str
    """The sample most aligned with the dominant eigenvector; the `candidate` where no answer was drawn."""
    calibrated: bool
    """Whether a calibration of this very set-up was applied. False where the default stood in for one (`calibration.origin`), or nothing did."""
    calibration: CalibrationUsed | None
    """The calibration used, be it the default; null: none, and the values are raw."""
    candidate: Candidate | None
    """The `candidate` judged; null without one."""
    claims: tuple[Claim, ...] | None = None
    """The claims of the `candidate` or, without one, of `answer`, in their order, where it is long or they were asked for: what it says, sentence by sentence. Absent elsewhere."""
    claims_calibration: CalibrationUsed | None = None
    """The calibration that the claims are served by; null: none. With `claims` alone."""
    claims_share: float | None = None
    """How much of that text is claims, 0..1. The rest is code, headings, questions, greetings and what the user said. With `claims` alone."""
    decision: Decision | None
    """Whether to let the `candidate` (without a candidate: `answer`) through, so that the target error is kept. Null if no calibration can decide and the request has no `target_error`, unless the answers are refusals. Without a `probability_correct` the decision is to abstain."""
    disagreements: tuple[Disagreement, ...] | None = None
    """Where the drawn answers hold different numbers, names or negations. Empty: nowhere. Null where fewer than two answers have content, where they are scored claim by claim, and in chats under EIGENCAL_ABSTAIN."""
    embedder: str
    """Embedder of the answers."""
    entropy: float | None
    """Von Neumann entropy served, nats. Higher = less certain."""
    entropy_normalized: float | None
    """Entropy over the largest that the spectrum allows, 0..1."""
    evidence: Evidence | None
    """What the log-probabilities say; null unless every answer has one."""
    id: str
    """Id of this score."""
    kernel: Literal["facts", "llm", "paper"] | None = None
    """What the answers were compared by, as of `calibration.kernel`."""
    lambda_max: float | None
    """Largest eigenvalue served, 0..1: the confidence. Higher = more certain. It is how much of their meaning the answers share, not the probability that the answer is right. Null where no answer was drawn (effort `none`), as are the other values of a spectrum."""
    model: str | None
    """Model that answered; null for supplied samples, and for a supplied candidate where no answer was drawn."""
    modes: tuple[Mode, ...] | None = None
    """The leading meanings, at most five."""
    num_distinct: int
    """Distinct ones among them."""
    num_empty: int
    """Answers without text: left out as failed, unless the settings say what they mean."""
    num_refusals: int
    """Number of drawn answers without content: refusals, placeholders (null), errors, punctuation, or the question itself. They count in the spectrum. If the judged text is a refusal, or more than half of the answers are, the decision is to abstain, with the warning `refusals`."""
    num_samples: int
    """Answers scored."""
    num_truncated: int
    """Answers cut by max_tokens; they count."""
    ood_p_value: float | None
    """Conformal p-value, 0..1, of the hypothesis that the prompt is like the calibration's rows. It compares the question and, if answers were drawn, their mean length. Lower = less alike. Below 0.02 the score has a warning. The smallest possible value is 2 / (rows + 1) by the question and 4 / (rows + 1) by the length, so with fewer than 200 rows the length alone cannot reach 0.02; `length_out_of_range` then warns of lengths that no row has. Null without a calibration, and for calibrations that do not keep the prompts of their rows."""
    probability_all_correct: float | None = None
    """Probability that every claim of that text is right, 0..1. Null without a calibration of claims that tells. With `claims` alone."""
    probability_correct: float | None
    """Probability that `answer` is right, 0..1, estimated from the verdicts on the calibration's questions; by the default calibration from none (warning `default_probability`). Null without a calibration, if the calibration has no correctness model for this number of answers, if the model needs log-probabilities that are missing, and if `answer` is a refusal."""
    rank_score: float | None = None
    """A number to sort texts by where the default calibration serves: `probability_correct` of the `candidate` or, without one, of `answer`. Null elsewhere."""
    samples: tuple[str, ...] | None = None
    """The answers, in the order drawn."""
    spectrum: Spectrum | None = None
    """The whole spectrum."""
    timings_ms: Timings
    """Where the time went."""
    uncalibrated: SpectrumValues | None
    """The same two numbers without calibration."""
    usage: Usage | None
    """Tokens used, comparisons included; null where the LLM was not called."""
    warnings: tuple[ScoreWarning, ...]
    """What to know about this score."""


class Verified(Result):
    """Whether the answer will do."""

    claims: tuple[Claim, ...] | None = None
    """The claims of a long answer, as POST /score has them; null of a short one."""
    confidence: float
    """Calibrated probability that the answer is right, 0..1. It is 0 for a refusal, and for an answer that no drawn answer supports."""
    samples: tuple[str, ...]
    """The answers, in the order drawn."""
    should_escalate: bool
    """True if the confidence is below the threshold, if most drawn answers are refusals, or if the question is out of distribution (unless `EIGENCAL_OOD_ABSTAIN` is off)."""
    threshold: float
    """The threshold that was sent."""
    total_samples: int
    """How many answers were drawn."""
    verified_count: int
    """How many of the answers drawn lie on the mode of the answer: closest to the eigenvector of their density matrix that the answer belongs to, so that they mean the same. 0 where it belongs to none."""
