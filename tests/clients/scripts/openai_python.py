"""openai-python: `create` in one piece and streamed, `stream()`, and lists and errors."""

from typing import Any

import openai
from told import (
    ASK,
    BASE_URL,
    KEY,
    KINDS,
    ONLY,
    USAGE,
    conversations,
    extra,
    of_chunks,
    of_completion,
    tell,
)

client = openai.OpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0)


def create(**more: Any) -> dict[str, Any]:
    raw = client.chat.completions.with_raw_response.create(**ASK, **more)
    return of_completion(raw.parse(), raw.headers)


def streamed(**more: Any) -> dict[str, Any]:
    raw = client.chat.completions.with_raw_response.create(**ASK, stream=True, **USAGE, **more)
    return of_chunks(raw.parse(), raw.headers)


def helper(**more: Any) -> dict[str, Any]:
    """`stream()`, which puts the completion together itself."""
    with client.chat.completions.stream(**ASK, **USAGE, **more) as stream:
        chunks = [event.chunk for event in stream if event.type == "chunk"]
        final = stream.get_final_completion()
    told = of_completion(final, {})
    told["ways"] = {
        "body": extra(final),
        "message": extra(final.choices[0].message),
        "chunk": of_chunks(chunks, {})["ways"]["body"],
    }
    return told


def message(turns: list[Any]) -> tuple[str | None, Any]:
    """`create`, and its message as the next turn."""
    found = client.chat.completions.create(**{**ASK, "messages": turns}).choices[0].message
    return found.content, found


def dumped(turns: list[Any]) -> tuple[str | None, Any]:
    """The same as a dictionary."""
    found = client.chat.completions.create(**{**ASK, "messages": turns}).choices[0].message
    return found.content, found.model_dump()


def parsed(turns: list[Any]) -> tuple[str | None, Any]:
    """`parse()`, and its message as the next turn."""
    found = client.chat.completions.parse(**{**ASK, "messages": turns}).choices[0].message
    return found.content, found


def final_message(turns: list[Any]) -> tuple[str | None, Any]:
    """`stream()`, and the message of its final completion as the next turn."""
    with client.chat.completions.stream(**{**ASK, "messages": turns}) as stream:
        found = stream.get_final_completion().choices[0].message
    return found.content, found


def several() -> dict[str, Any]:
    """Three choices, with log-probabilities."""
    asked = {**ASK, "temperature": 0.3, "top_p": 0.9}
    found = client.chat.completions.create(**asked, n=3, logprobs=True)
    return {
        "choices": len(found.choices),
        "logprobs": [len(choice.logprobs.content) > 0 for choice in found.choices],
        "ways": {"body": extra(found)},
    }


def refused() -> dict[str, Any]:
    """An error of the server, as the client raises it."""
    try:
        client.chat.completions.create(**{**ASK, "model": "other"})
    except openai.APIStatusError as error:
        return {"status": error.status_code, "raised": type(error).__name__, "code": str(error.code)}
    return {}


def listed() -> dict[str, Any]:
    return {"models": [model.id for model in client.models.list()]}


results = {
    f"{way.__name__}-{kind}": way(**more)
    for kind, more in KINDS.items()
    for way in (create, streamed, helper)
}
around = () if ONLY else (several, refused, listed)
results |= conversations(message, dumped, parsed, final_message)
tell(results | {one.__name__: one() for one in around})
