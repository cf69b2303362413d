"""What is drawn beside a call of an OpenAI-compatible API, and whether its own answer is drawn alike."""

from collections.abc import Mapping
from typing import Any, Literal

from service.errors import Unscorable
from service.llm.port import Sampling, WirePrompt

Api = Literal["chat", "completions"]

# The caller's own sampling, which the calibrated one stands in for. What a parameter is without effect as.
NEUTRAL: dict[str, Any] = {
    "n": 1,
    "best_of": 1,
    "seed": None,
    "min_p": 0,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "repetition_penalty": 1,
    "logit_bias": {},
    "use_beam_search": False,
    "min_tokens": 0,
    "ignore_eos": False,
}
SAMPLED = frozenset({"temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "stop"})
# What changes nothing of what is said: how it is told, and to whom it is reckoned.
ASIDE = frozenset(
    {
        "model",
        "stream",
        "stream_options",
        "logprobs",
        "top_logprobs",
        "prompt_logprobs",
        "echo",
        "user",
        "metadata",
        "store",
        "service_tier",
        "priority",
        "request_id",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
    }
)
PLAIN_ROLES = frozenset({"system", "user", "assistant"})
PLAIN_TURN = frozenset({"role", "content"})
# Members that say nothing where they have these values.
SILENT: dict[str, Any] = {"response_format": {"type": "text"}, "modalities": ["text"]}


def wire_prompt(body: Mapping[str, Any], api: Api) -> WirePrompt:
    """Return what to draw with: all of a call that decides what is said, but for its sampling.

    A chat of plain text turns has no marks, nor has a text to complete: they are drawn like any other. Raises
    Unscorable.
    """
    fields = {name: value for name, value in body.items() if value is not None}
    own = "messages" if api == "chat" else "prompt"
    marks = {
        name: value
        for name, value in fields.items()
        if name not in {own} | ASIDE | SAMPLED | NEUTRAL.keys() and SILENT.get(name) != value
    }
    if api == "chat":
        turns = fields.get("messages")
        beside = _unlike_plain(turns)
        # No chat that a calibration knows: servers go on with that turn, or begin another.
        if turns and turns[-1].get("role") == "assistant":
            beside["last_turn"] = "assistant"
        return WirePrompt(api, {"messages": turns, **marks}, marks | beside)
    prompt, beside = _one_prompt(fields)
    return WirePrompt(api, {"prompt": prompt, **marks}, marks | beside)


def drawn_alike(body: Mapping[str, Any], sampling: Sampling) -> bool:
    """Tell whether the call's own answer is drawn as those beside it are: it says so of every parameter.

    A parameter that is left out is the server's to choose, and may be the model's own default.
    """
    most = _own_limit(body)
    asked = (body.get("temperature"), body.get("top_p"), body.get("top_k"), most, _stops(body.get("stop")))
    wanted = (
        sampling.temperature,
        sampling.top_p,
        sampling.top_k,
        sampling.max_tokens,
        sorted(sampling.stop),
    )
    neutral = all(body.get(name) in (None, value) for name, value in NEUTRAL.items())
    return asked == wanted and neutral and sampling.seed is None


def token_limit(body: Mapping[str, Any], sampling: Sampling) -> int:
    """Return the most tokens of an answer beside the call: its own limit, where that is larger.

    A model that reasons needs what its caller gives it: cut before, the draws would hold no answer.
    """
    most = _own_limit(body)
    return max(most, sampling.max_tokens) if type(most) is int else sampling.max_tokens


def _own_limit(body: Mapping[str, Any]) -> Any:
    return body.get("max_completion_tokens") or body.get("max_tokens")


def _stops(stop: object) -> object:
    if isinstance(stop, list) and all(isinstance(one, str) for one in stop):
        return sorted(stop)
    return [] if stop is None else [stop]


def _unlike_plain(turns: object) -> dict[str, Any]:
    """Return what of the turns is no plain text: by kind, as their texts are no part of a prompt's shape."""
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise Unscorable("unreadable_request", "The call's `messages` are no list of turns.")
    strange = {name for turn in turns for name, value in turn.items() if value is not None} - PLAIN_TURN
    strange |= {str(turn.get("role")) for turn in turns} - PLAIN_ROLES
    strange |= {kind for turn in turns for kind in _kinds(turn.get("content"))} - {"text"}
    return {"turns": sorted(strange)} if strange else {}


def _kinds(content: object) -> list[str]:
    """Return the kinds of the parts that a turn's content has."""
    if content is None or isinstance(content, str):
        return ["text"]
    if not isinstance(content, list):
        return ["unknown"]
    return [_kind(part) for part in content]


def _kind(part: object) -> str:
    if not isinstance(part, dict):
        return "unknown"
    kind = str(part.get("type"))
    return kind if kind != "text" or isinstance(part.get("text"), str) else "unknown"


def _one_prompt(fields: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the text to complete, and its marks: tokens are no text. Raises Unscorable for several."""
    if fields.get("echo"):
        raise Unscorable(
            "echo", "With `echo` the answer repeats its prompt: there is none to judge by itself."
        )
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        [prompt] = prompt
    if isinstance(prompt, str):
        return prompt, {}
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return prompt, {"prompt": "tokens"}
    raise Unscorable("many_prompts", "A score is of one prompt: the call has another number, or none.")
