# Made from clients/openapi.json by `make openapi-models`; changed there alone.
# ruff: noqa

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict


class CalibrateOptions(TypedDict):
    """Dev data as a file, options as form fields."""

    activate: NotRequired[Literal["if_better", "always", "never"] | None]
    """When to serve it: `if_better` than the active one on the same rows."""
    compare: NotRequired[Literal["embeddings", "llm"] | None]
    """How answers are compared, as of `POST /score`: a calibration holds for one way. Left out: as the service is set up. Claims are compared by `embeddings`."""
    drawn_by: NotRequired[Literal["caller", "service"] | None]
    """Who drew the `samples` of the rows; `service`: you vouch that this LLM set-up did."""
    method: NotRequired[Literal["depolarized", "temperature", "evidence", "both", "auto"] | None]
    """Map to serve. `auto`: the one of lowest cross-validated risk, `evidence` among them where every answer has a log-probability; `both`: the better of the other two."""
    name: NotRequired[str | None]
    """A name for people."""
    num_samples: NotRequired[int | None]
    """Answers per prompt; left out: as many as a score draws."""
    prior_weight: NotRequired[float | None]
    """Labelled rows that the default calibration counts for, to which fits are drawn; left out: 30; 0: the rows alone, as for claims."""
    seed: NotRequired[int | None]
    """Seed of folds, subsets and bootstrap."""
    source_label: NotRequired[str | None]
    """Names the caller's own set-up; scores of that label fit."""
    unit: NotRequired[Literal["answer", "claim"] | None]
    """What scores are calibrated: of whole answers, or of single claims of long ones, by the `claims` of the rows."""


class CandidateToken(TypedDict):
    """A token of the candidate, as chats tell it (`choices[0].logprobs.content`); more of it is ignored."""

    logprob: float
    """Its natural-log probability."""
    token: str
    """Its text."""


class ChatMessage(TypedDict):
    """One turn of a conversation."""

    content: str
    """What is said."""
    role: Literal["system", "user", "assistant"]
    """Who speaks."""


class CorrectOptions(TypedDict):
    """Corrected verdicts, and options of the calibration that is fitted with them."""

    activate: NotRequired[Literal["if_better", "always", "never"] | None]
    """When to serve it. Left out: at once where the calibration corrected is the active one, else never."""
    method: NotRequired[Literal["depolarized", "temperature", "evidence", "both", "auto"] | None]
    """Map to serve; left out: as for the calibration corrected."""
    name: NotRequired[str | None]
    """A name for people; left out: the same."""


class Correction(TypedDict):
    """A row by its `line` or its `id`, and whether the answer that was judged is right."""

    correct: bool
    """Whether the answer that was judged is right."""
    id: NotRequired[str]
    """Or its id."""
    line: NotRequired[int]
    """Line of the row in the file."""


class EvaluateOptions(TypedDict):
    """Two sets of rows as files, options as form fields."""

    name: NotRequired[str | None]
    """A name for people."""
    num_samples: NotRequired[int | None]
    """Answers per prompt; left out: as many as a score draws."""
    seed: NotRequired[int | None]
    """Seed of folds, draws and bootstrap."""


class SamplingOptions(TypedDict):
    """How the LLM draws answers; what is left out comes from the settings."""

    max_tokens: NotRequired[int | None]
    """Most tokens of an answer."""
    seed: NotRequired[int | None]
    """Seed passed to the LLM; left out: none. Some servers cannot take one."""
    stop: NotRequired[Sequence[str] | None]
    """Strings that end an answer."""
    temperature: NotRequired[float | None]
    """Sampling temperature; 0 makes all answers equal."""
    top_k: NotRequired[int | None]
    """Most likely tokens kept; 0: all."""
    top_p: NotRequired[float | None]
    """Nucleus sampling: probability mass kept."""


class ScoreOptions(TypedDict):
    """What to score: `prompt` or `messages`, or `samples` already drawn (then `prompt` is optional)."""

    calibration: NotRequired[str | None]
    """`active`, `none` (raw values), or the id of a calibration."""
    candidate: NotRequired[str | None]
    """A text to judge by the answers, such as the one about to be sent. It never counts as one of them. A blank one is refused, unless the settings say what empty answers mean."""
    candidate_logprob: NotRequired[float | None]
    """The natural-log probability of the whole `candidate`, the token that ended it included, by the LLM that wrote it. It counts where no answer is drawn."""
    candidate_tokens: NotRequired[Sequence[CandidateToken] | None]
    """The tokens of the `candidate`, in order: what they tell of each of its claims, without any answer drawn. Tokens of another text are not used. Refused if their sum contradicts `candidate_logprob`."""
    claims: NotRequired[bool | None]
    """Whether to score the `candidate` or, without one, `answer` claim by claim, too. Left out: where it has as many characters as the settings say (400)."""
    compare: NotRequired[Literal["embeddings", "llm"] | None]
    """How distinct answers are compared: by their `embeddings`, or `llm`: the LLM is also asked of each pair whether both say the same. Left out: as the service is set up."""
    confidence: NotRequired[float | None]
    """Confidence with which the target is kept; left out: 0.9."""
    deadline_ms: NotRequired[int | None]
    """Time for the answers to come; what has come by then is scored (two at least, one by evidence)."""
    effort: NotRequired[Literal["none", "low", "medium", "high", "auto"] | None]
    """How many answers to draw, in place of `num_samples`: `low`, `medium` and `high` stand for 3, 8 and 20 of them. More cost more tokens. `none` draws none and costs no token: the `candidate` is judged by its `candidate_logprob`, and there is no spectrum. `auto`: as many as the calibration's report recommends (none only with a `candidate_logprob`), else as `low`."""
    logprobs: NotRequired[Sequence[float] | None]
    """The natural-log probability of each whole sample, the token that ended it included: as many as `samples`. Where a sample is only a part of what was drawn, leave this out. (Rows of `POST /calibrate` may call it `logprob`, too; here it has this one name.)"""
    messages: NotRequired[Sequence[ChatMessage] | None]
    """A conversation, sent to the LLM as it is. The last turn is not the assistant's."""
    model: NotRequired[str | None]
    """Model to ask the LLM server for."""
    num_samples: NotRequired[int | None]
    """Answers to draw. One is enough where a calibration by evidence fits, else two."""
    samples: NotRequired[Sequence[str] | None]
    """Answers already drawn; the LLM is not called. Empty ones are left out, unless the settings say what they mean. One is enough with its log-probability where a calibration by evidence fits, else two."""
    sampling: NotRequired[SamplingOptions | None]
    """How to draw them."""
    source_label: NotRequired[str | None]
    """Who drew `samples`: a calibration fits only its own label."""
    target_error: NotRequired[float | None]
    """Share of wrong ones allowed among the answers let through, for `decision`. Left out: that of the settings, else 0.2 where a calibration can decide."""
    return_: NotRequired[Sequence[Literal["samples", "modes", "spectrum"]] | None]
    """Further parts of the answer: what to return."""
