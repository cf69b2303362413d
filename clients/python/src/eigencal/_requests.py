# Made from clients/openapi.json by `make openapi-models`; changed there alone.
# ruff: noqa

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict


class CalibrateOptions(TypedDict):
    """Dev data as a file, options as form fields."""

    activate: NotRequired[Literal["if_better", "always", "never"] | None]
    """When to activate the calibration. `if_better`: if it is better than the active one on the same rows."""
    compare: NotRequired[Literal["embeddings", "llm"] | None]
    """How answers are compared, as in `POST /score`. A calibration applies to one way only. Left out: the service's setting. Claims are never compared by the LLM."""
    drawn_by: NotRequired[Literal["caller", "service"] | None]
    """Source of the rows' `samples`. `service`: you confirm that this LLM set-up drew them."""
    method: NotRequired[Literal["depolarized", "temperature", "evidence", "both", "auto"] | None]
    """Map to serve. `auto`: the map with the lowest cross-validated risk, including `evidence` if every answer has a log-probability. `both`: the better of the two other maps."""
    name: NotRequired[str | None]
    """Name for display. Left out: the name of an uploaded file."""
    num_samples: NotRequired[int | None]
    """Answers per prompt. Left out: the number that a score draws."""
    seed: NotRequired[int | None]
    """Seed of folds and resamples."""
    self_check: NotRequired[bool | None]
    """Whether P(correct) uses the LLM's self-checks of the judged texts, as in `POST /score`. Left out: the service's setting."""
    source_label: NotRequired[str | None]
    """Name of the caller's own set-up. The calibration applies to scores with the same label."""
    unit: NotRequired[Literal["answer", "claim"] | None]
    """Unit of the calibrated scores: `answer` for whole answers, `claim` for single claims of long answers, by the `claims` of the rows."""


class CandidateToken(TypedDict):
    """A token of the candidate, as in chats (`choices[0].logprobs.content`). Other fields are ignored."""

    logprob: float
    """Natural-log probability of the token."""
    token: str
    """Text of the token."""


class ChatMessage(TypedDict):
    """One turn of a conversation."""

    content: str
    """Text of the turn."""
    role: Literal["system", "user", "assistant"]
    """Speaker of the turn."""


class CorrectOptions(TypedDict):
    """Corrected verdicts, and options of the calibration that is fitted with them."""

    activate: NotRequired[Literal["if_better", "always", "never"] | None]
    """When to activate the new calibration. Left out: at once if the corrected calibration is active, otherwise never."""
    method: NotRequired[Literal["depolarized", "temperature", "evidence", "both", "auto"] | None]
    """Map to serve. Left out: the map of the corrected calibration."""
    name: NotRequired[str | None]
    """Name for display. Left out: the same name."""


class Correction(TypedDict):
    """A row by its `line` or its `id`, and the verdict on its judged answer."""

    correct: bool
    """Whether the judged answer is right."""
    id: NotRequired[str]
    """Id of the row, instead of `line`."""
    line: NotRequired[int]
    """Line of the row in the file."""


class SamplingOptions(TypedDict):
    """Sampling parameters of the LLM. Parameters that are left out come from the settings."""

    max_tokens: NotRequired[int | None]
    """Largest number of tokens in an answer."""
    seed: NotRequired[int | None]
    """Seed passed to the LLM. Left out: none. Some servers do not accept a seed."""
    stop: NotRequired[Sequence[str] | None]
    """Strings that end an answer."""
    temperature: NotRequired[float | None]
    """Sampling temperature. With 0, all answers are equal."""
    top_k: NotRequired[int | None]
    """Number of most likely tokens kept. 0: all."""
    top_p: NotRequired[float | None]
    """Nucleus sampling: probability mass kept."""


class ScoreOptions(TypedDict):
    """A request for a score: `prompt` or `messages`, or drawn `samples` (`prompt` is then optional)."""

    calibration: NotRequired[str | None]
    """`active`, `none` (raw values) or the id of a calibration."""
    candidate: NotRequired[str | None]
    """A text to judge by the answers, for example the text about to be sent. It does not count as an answer. A blank candidate is refused."""
    candidate_logprob: NotRequired[float | None]
    """Natural-log probability of the whole `candidate`, including the token that ended it, under the LLM that wrote it. Without samples, the candidate is judged by it alone."""
    candidate_tokens: NotRequired[Sequence[CandidateToken] | None]
    """Tokens of the `candidate` in order. They give the log-probabilities of its claims, even without samples. Tokens of another text are ignored. They are refused if their sum contradicts `candidate_logprob`."""
    claims: NotRequired[bool | None]
    """Whether to also score the `candidate` or, without one, `answer` claim by claim. Left out: the text is scored claim by claim if it reaches the length in the settings (400 characters)."""
    compare: NotRequired[Literal["embeddings", "llm"] | None]
    """How distinct answers are compared. `embeddings`: by their embeddings. `llm`: the LLM is also asked whether both answers of a pair say the same. Claims are compared by their facts. Left out: the service's setting."""
    confidence: NotRequired[float | None]
    """Confidence level with which the target is kept. Left out: 0.9."""
    deadline_ms: NotRequired[int | None]
    """Time limit for the score, in milliseconds. If it passes, the result is the error `deadline_exceeded` (504)."""
    logprobs: NotRequired[Sequence[float] | None]
    """Natural-log probability of each whole sample, including the token that ended it. One number for each sample. Leave this out if a sample is only a part of the drawn text. (Rows of `POST /calibrate` may also call it `logprob`. Here only this name is accepted.)"""
    messages: NotRequired[Sequence[ChatMessage] | None]
    """A conversation, sent to the LLM unchanged. The last turn must not be the assistant's."""
    model: NotRequired[str | None]
    """Model requested from the LLM server."""
    num_samples: NotRequired[int | Literal["auto"] | None]
    """Number of answers to draw. At least two are needed. One is enough if a calibration by evidence fits. 0 draws no answers: the `candidate` is judged by its `candidate_logprob`, and there is no spectrum. `auto` draws the number that the report of the calibration recommends (none only with a `candidate_logprob`); without a recommendation, 3. Left out: the number of the settings."""
    samples: NotRequired[Sequence[str] | None]
    """Answers already drawn. The LLM is called only for a self-check, if the calibration needs it or you ask for it. Empty answers do not count. At least two are needed. One is enough if it has a log-probability and a calibration by evidence fits."""
    sampling: NotRequired[SamplingOptions | None]
    """Sampling parameters of the answers."""
    self_check: NotRequired[bool | None]
    """Whether to ask the LLM with one token if the judged text is correct. Calibrations made with such self-checks need them for P(correct). Left out: the service's setting."""
    source_label: NotRequired[str | None]
    """Name of the model or system that drew `samples`. A calibration fits only its own label."""
    target_error: NotRequired[float | None]
    """Largest share of wrong answers among those let through, for `decision`. Left out: the target of the settings, otherwise 0.2 if a calibration can decide."""
    return_: NotRequired[Sequence[Literal["samples", "modes"]] | None]
    """Further parts of the score to return."""
