"""A caller's call to the drop-in, and the prompt of the samples for its score."""

from asyncio import Task
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from service.errors import Unscorable
from service.http.bodies import RequestModel
from service.ids import new_id
from service.llm.prompt import Prompt, as_sent
from service.proxy.answer import Answer
from service.scoring.score import NumSamples, Score, ScoreCommand
from service.scoring.scorer import Samples

Mode = Literal["off", "async", "on"]

# Sampling parameters of the call: samples use the calibrated sampling.
SAMPLING = frozenset(
    {"temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "stop", "n", "best_of", "seed"}
    | {"min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias"}
    | {"use_beam_search", "min_tokens", "ignore_eos"}
)
# Members that do not change the answer, only its format or accounting.
ASIDE = frozenset(
    {"messages", "model", "stream", "stream_options", "logprobs", "top_logprobs", "prompt_logprobs", "echo"}
    | {"user", "metadata", "store", "service_tier", "priority", "request_id", "safety_identifier"}
    | {"prompt_cache_key", "prompt_cache_retention"}
)
# Members that have no effect without tools, and values that have no effect.
ABOUT_TOOLS = frozenset({"tool_choice", "function_call", "parallel_tool_calls"})
ON = ("skip_special_tokens", "spaces_between_special_tokens", "add_generation_prompt", "detokenize")
OFF = ("include_stop_str_in_output", "continue_final_message", "add_special_tokens", "return_token_ids")
WITHOUT_EFFECT: Mapping[str, Any] = {
    "response_format": {"type": "text"},
    "modalities": ["text"],
    **dict.fromkeys((*ON, "include_reasoning", "parallel_tool_calls"), True),
    **dict.fromkeys(OFF, False),
}


class ScoreOptions(RequestModel):
    """Options for the score of the answer: the field `eigencal` of a call. See docs/drop-in.md."""

    num_samples: NumSamples | None = None
    target_error: float | None = Field(None, gt=0, lt=1)
    confidence: float | None = Field(None, gt=0, lt=1)
    calibration: str = Field("active", pattern=r"^(active|none|cal_[0-9A-Z]{26})$")
    claims: bool | None = None
    mark: bool = False
    abstain: bool | None = None


NO_OPTIONS = ScoreOptions()


@dataclass(slots=True)
class Call:
    """A call to the drop-in, its answer, and its score so far.

    `body`: the bytes to forward to `path`. `payload`: their JSON object, or None if it cannot be sent again
    as JSON. `streams`: the caller wants a stream. `abstains`: the answer waits until it is judged, and may be
    withheld; the server is asked for a whole answer. `owner`: hash of the API key that may fetch the score.

    `command`: for the score; None if there can be no score, because of `failure`. `is_judged_alone`: the
    answer's own log-probability replaces the samples, if it is known. `is_pending`: the answer was sent
    before its score was ready. `judged`: the judged text. `document`: the score as last reported.
    """

    body: bytes
    path: str
    headers: Mapping[str, str]
    answer: Answer
    owner: str
    mode: Mode
    options: ScoreOptions = NO_OPTIONS
    payload: dict[str, Any] | None = None
    streams: bool = False
    abstains: bool = False

    id: str = field(default_factory=lambda: new_id("scr"))
    command: ScoreCommand | None = None
    failure: Exception | None = None
    is_judged_alone: bool = False
    drawing: Task[Samples] | None = None
    scoring: Task[None] | None = None
    is_pending: bool = False
    judged: str | None = None
    score: Score | None = None
    document: dict[str, Any] = field(default_factory=dict)


def prompt_of(body: Mapping[str, Any]) -> Prompt:
    """Return the members of a chat that determine the answer, except for sampling parameters.

    A prompt of turns of plain text has no marks. Raises Unscorable.
    """
    turns = body.get("messages")
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise Unscorable("unreadable_request", "The call's `messages` is not a list of turns.")
    fields = {name: value for name, value in body.items() if not _is_empty(value)}
    aside = ASIDE | SAMPLING | (frozenset() if {"tools", "functions"} & fields.keys() else ABOUT_TOOLS)
    effective = {name: value for name, value in fields.items() if WITHOUT_EFFECT.get(name) != value}
    parts = {name: value for name, value in effective.items() if name not in aside}
    kinds = sorted(set().union(*map(_kinds_of_turn, turns)))
    marks: dict[str, Any] = {"turns": kinds} if kinds else {}
    # Calibrations have no such chats. Some servers continue the last turn, others begin a new one.
    if turns and turns[-1].get("role") == "assistant":
        marks["last_turn"] = "assistant"
    return as_sent({"messages": turns, **parts}, parts | marks)


def _is_empty(value: object) -> bool:
    """Return True for a value equivalent to a missing member, such as LiteLLM's {"refusal": None}."""
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    return value in (None, "", [])


def _kinds_of_turn(turn: Mapping[str, Any]) -> set[str]:
    """Return the role, members and parts of a turn that are not plain text, without their contents."""
    kinds = {name for name, value in turn.items() if not _is_empty(value)} - {"role", "content"}
    kinds |= {str(turn.get("role"))} - {"system", "user", "assistant"}
    content = turn.get("content")
    if isinstance(content, list):
        kinds |= {_kind_of_part(part) for part in content} - {"text"}
    elif not isinstance(content, str | None):
        kinds.add("unknown")
    return kinds


def _kind_of_part(part: object) -> str:
    if not isinstance(part, dict) or (part.get("type") == "text" and not isinstance(part.get("text"), str)):
        return "unknown"
    return str(part.get("type"))
