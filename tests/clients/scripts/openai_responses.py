"""openai-python's Responses: `create` in one piece and streamed, `stream()` and `parse()`."""

from collections.abc import Mapping
from typing import Any

import openai
from pydantic import BaseModel
from told import BASE_URL, CASES, KEY, MODEL, RESPONSE_KINDS, conversations, extra, once, ours, selected, tell

client = openai.OpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0)
ASK: dict[str, Any] = {
    "model": MODEL,
    "input": CASES["messages"],
    "temperature": CASES["sampling"]["temperature"],
    "max_output_tokens": CASES["sampling"]["max_tokens"],
}


class City(BaseModel):
    city: str
    sure: bool


def of_response(response: Any, headers: Mapping[str, str]) -> dict[str, Any]:
    calls = [[item.name, item.arguments] for item in response.output if item.type == "function_call"]
    return {
        "text": response.output_text or None,
        "calls": calls,
        "finish": response.status,
        "usage": [response.usage.input_tokens, response.usage.output_tokens],
        "ways": {"body": extra(response), "headers": ours(headers)},
    }


def create(**more: Any) -> dict[str, Any]:
    raw = client.responses.with_raw_response.create(**ASK, **more)
    return of_response(raw.parse(), raw.headers)


def streamed(**more: Any) -> dict[str, Any]:
    raw = client.responses.with_raw_response.create(**ASK, stream=True, **more)
    events = list(raw.parse())
    told = of_response(events[-1].response, raw.headers)
    told["text"] = "".join(event.delta for event in events if event.type.endswith("text.delta")) or None
    told["ways"]["body"] = once(extra(event.response) for event in events if hasattr(event, "response"))
    return told


def helper(**more: Any) -> dict[str, Any]:
    """`stream()`, which puts the response together itself."""
    with client.responses.stream(**ASK, **more) as stream:
        return of_response(stream.get_final_response(), {})


def parsed(**more: Any) -> dict[str, Any]:
    """`parse()`, in JSON mode by a model of pydantic."""
    form = {"text_format": City} if more.pop("text", None) else {}
    response = client.responses.parse(**ASK, **more, **form)
    found = response.output_parsed
    return {**of_response(response, {}), "parsed": found and found.model_dump()}


def items(turns: list[Any]) -> tuple[Any, ...]:
    """`create`, and its output as the next turns."""
    found = client.responses.create(**{**ASK, "input": turns})
    return found.output_text, *found.output


def dumped(turns: list[Any]) -> tuple[Any, ...]:
    """The same as dictionaries."""
    text, *output = items(turns)
    return text, *(item.model_dump() for item in output)


def final_items(turns: list[Any]) -> tuple[Any, ...]:
    """`stream()`, and the output of its final response as the next turns."""
    with client.responses.stream(**{**ASK, "input": turns}) as stream:
        found = stream.get_final_response()
    return found.output_text, *found.output


def parsed_items(turns: list[Any]) -> tuple[Any, ...]:
    """`parse()`, and its output as the next turns."""
    found = client.responses.parse(**{**ASK, "input": turns})
    return found.output_text, *found.output


results = {
    f"{way.__name__}-{kind}": way(**more)
    for kind, more in selected(RESPONSE_KINDS).items()
    for way in (create, streamed, helper, parsed)
}
tell(results | conversations(items, dumped, final_items, parsed_items))
