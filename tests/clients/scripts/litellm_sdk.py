"""LiteLLM's own client: `completion` in one piece and streamed."""

from typing import Any

import litellm
from told import (
    ASK,
    BASE_URL,
    KEY,
    KINDS,
    MODEL,
    USAGE,
    conversations,
    counts,
    of_completion,
    once,
    ours,
    tell,
)

SERVER = {"model": f"openai/{MODEL}", "api_base": BASE_URL, "api_key": KEY, "num_retries": 0}


def create(**more: Any) -> dict[str, Any]:
    found = litellm.completion(**{**ASK, **SERVER}, **more)
    told = of_completion(found, {})
    told["ways"]["headers"] = ours(found._hidden_params.get("additional_headers", {}))
    return told


def streamed(**more: Any) -> dict[str, Any]:
    chunks = list(litellm.completion(**{**ASK, **SERVER}, stream=True, **USAGE, **more))
    whole = litellm.stream_chunk_builder(chunks)
    told = of_completion(whole, {})
    told["usage"] = once(counts(getattr(chunk, "usage", None)) for chunk in chunks)
    told["ways"] = {
        "body": once(getattr(chunk, "uncertainty", None) for chunk in chunks),
        "delta": once(getattr(c.choices[0].delta, "uncertainty", None) for c in chunks if c.choices),
    }
    return told


def message(turns: list[Any]) -> tuple[str | None, Any]:
    """`completion`, and its message as the next turn."""
    found = litellm.completion(**{**ASK, **SERVER, "messages": turns}).choices[0].message
    return found.content, found


def dumped(turns: list[Any]) -> tuple[str | None, Any]:
    """The same as a dictionary."""
    text, found = message(turns)
    return text, found.model_dump()


def built(turns: list[Any]) -> tuple[str | None, Any]:
    """`completion`, streamed, and the message that `stream_chunk_builder` makes as the next turn."""
    chunks = list(litellm.completion(**{**ASK, **SERVER, "messages": turns}, stream=True))
    found = litellm.stream_chunk_builder(chunks).choices[0].message
    return found.content, found


results = {
    f"{way.__name__}-{kind}": way(**more) for kind, more in KINDS.items() for way in (create, streamed)
}
tell(results | conversations(message, dumped, built))
