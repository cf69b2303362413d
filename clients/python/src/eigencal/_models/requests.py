"""What is sent, where it is more than a text."""

from collections.abc import Sequence
from typing import Any, Literal, Required, TypedDict

Effort = Literal["low", "medium", "high"]


class ChatMessage(TypedDict):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    """Who speaks."""
    content: str
    """What is said."""


class SamplingOptions(TypedDict, total=False):
    """How the LLM draws answers; what is left out comes from the settings of the service."""

    max_tokens: int
    """Most tokens of an answer."""
    seed: int
    """Seed passed to the LLM; left out: none. Some servers cannot take one."""
    stop: Sequence[str]
    """Strings that end an answer."""
    temperature: float
    """Sampling temperature; 0 makes all answers equal."""
    top_k: int
    """Most likely tokens kept; 0: all."""
    top_p: float
    """Nucleus sampling: probability mass kept."""


class ScoreOptions(TypedDict, total=False):
    """How to score. What is left out, or None, is as the service is set up."""

    messages: Sequence[ChatMessage] | None
    """A conversation in place of the prompt, sent to the LLM as it is."""
    samples: Sequence[str] | None
    """Answers already drawn; the LLM is not called. Empty ones count as one outcome. One is enough with its
    log-probability where a calibration by evidence fits, else two."""
    logprobs: Sequence[float] | None
    """The natural-log probability of each whole sample, the token that ended it included."""
    source_label: str | None
    """Who drew `samples`: a calibration fits only its own label."""
    candidate: str | None
    """A text to judge by the answers, such as the one about to be sent. It never counts as one of them."""
    num_samples: int | None
    """Answers to draw, 1..256. One is enough where a calibration by evidence fits, else two."""
    effort: Effort | None
    """How many answers to draw, in place of `num_samples`: 3, 8 or 20, unless the service says otherwise."""
    sampling: SamplingOptions | None
    """How to draw them."""
    model: str | None
    """Model to ask the LLM server for."""
    deadline_ms: int | None
    """Milliseconds for the answers to come; what has come by then is scored. It bounds the whole call,
    repeats included: a repeat is sent with what is left of it."""
    calibration: str | None
    """`active` (the default), `none` (raw values), or the id of a calibration."""
    target_error: float | None
    """Share of wrong ones allowed among the answers let through, 0..1: asks for a `decision`."""
    confidence: float | None
    """Confidence with which the target is kept, 0..1."""
    return_: Sequence[Literal["samples", "modes", "spectrum"]] | None
    """Further parts of the score: what to return. `modes` if left out."""


class CalibrateOptions(TypedDict, total=False):
    """How to fit a calibration. What is left out, or None, is as the service does it."""

    name: str | None
    """A name for people."""
    method: Literal["depolarized", "temperature", "evidence", "both", "auto"] | None
    """Map to serve; `auto` (the default): the one of lowest cross-validated risk."""
    num_samples: int | None
    """Answers per prompt; left out: as many as a score draws."""
    activate: Literal["if_better", "always", "never"] | None
    """When to serve it; `if_better` (the default) than the active one on the same rows."""
    drawn_by: Literal["caller", "service"] | None
    """Who drew the `samples` of the rows; `service`: you vouch that this LLM set-up did."""
    source_label: str | None
    """Names your own set-up; scores of that label fit."""
    seed: int | None
    """Seed of folds, subsets and bootstrap."""


class CorrectOptions(TypedDict, total=False):
    """How to calibrate with corrected verdicts. What is left out, or None, is as it was."""

    name: str | None
    """A name for people."""
    method: Literal["depolarized", "temperature", "evidence", "both", "auto"] | None
    """Map to serve."""
    activate: Literal["if_better", "always", "never"] | None
    """When to serve it."""


class Correction(TypedDict, total=False):
    """A row by its `line` or its `id`, and whether the answer that was judged is right."""

    line: int
    """Line of the row in the file."""
    id: str
    """Or its id."""
    correct: Required[bool]
    """Whether the answer that was judged is right."""


class EvaluateOptions(TypedDict, total=False):
    """How to evaluate. What is left out, or None, is as the service does it."""

    name: str | None
    """A name for people."""
    num_samples: int | None
    """Answers per prompt; left out: as many as a score draws."""
    seed: int | None
    """Seed of folds, draws and bootstrap."""


class ChatOptions(TypedDict, total=False):
    """How to score the answer of a chat: the field `eigencal` of the drop-in."""

    effort: Effort
    """How many answers to draw beside it."""
    num_samples: int
    """In place of `effort`: how many, 2..256."""
    target_error: float
    """Share of wrong ones allowed among the answers let through, 0..1: asks for a `decision`."""
    confidence: float
    """Confidence with which the target is kept, 0..1."""
    calibration: str
    """`active`, `none`, or the id of a calibration."""
    abstain: bool
    """Whether a decision to abstain replaces the answer; not of a stream. Where the service abstains by its
    settings it does so in any case."""


Row = dict[str, Any]
"""A labelled row of dev data, as POST /calibrate takes it: `prompt` or `messages`, `reference`, and more."""
