"""The prompt of the samples for the score of a chat's answer, and their token limit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from service.errors import Unscorable
from service.llm.prompt import WirePrompt
from service.llm.samples import Draw
from service.scoring.scorer import Samples

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


def prompt_of(body: Mapping[str, Any]) -> WirePrompt:
    """Return the members of a chat that determine the answer, except for sampling parameters.

    A prompt of turns of plain text has no marks. Raises Unscorable.
    """
    turns = body.get("messages")
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise Unscorable("unreadable_request", "The call's `messages` is not a list of turns.")
    fields = {name: value for name, value in body.items() if not _is_empty(value)}
    aside = ASIDE | SAMPLING | (frozenset() if {"tools", "functions"} & fields.keys() else ABOUT_TOOLS)
    parts = {name: fields[name] for name in fields.keys() - aside if WITHOUT_EFFECT.get(name) != fields[name]}
    kinds = sorted(set().union(*map(_kinds_of_turn, turns)))
    marks: dict[str, Any] = {"turns": kinds} if kinds else {}
    # Calibrations have no such chats. Some servers continue the last turn, others begin a new one.
    if turns and turns[-1].get("role") == "assistant":
        marks["last_turn"] = "assistant"
    return WirePrompt({"messages": turns, **parts}, parts | marks)


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


def limit_of(body: Mapping[str, Any], default: int) -> int:
    """Return the token limit of a call."""
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    return limit if type(limit) is int else default


def under_limit(drawn: Samples, answers: Sequence[Draw], limit: int) -> Samples:
    """Return the samples with the token limit that the answers are compatible with.

    `limit`: of the settings. Answers drawn under a larger limit count as drawn under it if none is longer.
    Answers drawn under the call's smaller limit do so too, if that limit cut none.
    """
    request, generation = drawn.command.generation, drawn.generation
    assert request is not None
    counted = [answer.num_tokens for answer in answers if answer.num_tokens is not None]
    all_counted = len(counted) == len(answers) + generation.num_empty
    # If a count is missing, the sum over all samples is an upper bound of the longest.
    longest = max(counted) if all_counted else generation.usage.completion_tokens
    if generation.max_tokens is not None and any(answer.truncated for answer in answers):
        limit = generation.max_tokens
    elif not 0 < longest <= limit:
        return drawn
    sampling = replace(request.sampling, max_tokens=limit)
    return replace(drawn, command=replace(drawn.command, generation=replace(request, sampling=sampling)))
