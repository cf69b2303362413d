"""OpenAI's Agents SDK: `Runner.run` and `Runner.run_streamed`."""

import asyncio
from typing import Any

from agents import (
    Agent,
    ItemHelpers,
    ModelSettings,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic import BaseModel
from told import BASE_URL, CASES, KEY, MODEL, conversations, extra, once, ours, selected, tell

set_tracing_disabled(True)
SYSTEM, USER = (turn["content"] for turn in CASES["messages"])
SAMPLING = CASES["sampling"]


class City(BaseModel):
    city: str
    sure: bool


@function_tool
def weather(city: str, days: int) -> str:
    """The weather of the next days."""
    return f"{city}: sun for {days} days"


KINDS: dict[str, dict[str, Any]] = {
    "text": {},
    "tools": {"tools": [weather], "tool_use_behavior": "stop_on_first_tool"},
    "json": {"output_type": City},
}


def agent(seen: list[dict[str, str]], **more: Any) -> Agent:
    """Return an agent; `seen` gets the score headers of each response."""

    async def keep(response: Any) -> None:
        seen.append(ours(response.headers))

    http = DefaultAsyncHttpxClient(event_hooks={"response": [keep]})
    client = AsyncOpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0, http_client=http)
    choice = "weather" if "tools" in more else None
    return Agent(
        name="agent",
        model=OpenAIResponsesModel(model=MODEL, openai_client=client),
        model_settings=ModelSettings(**SAMPLING, tool_choice=choice),
        **more,
    )


def of_result(result: Any, headers: list[dict[str, str]]) -> dict[str, Any]:
    calls = [item.raw_item for item in result.new_items if item.type == "tool_call_item"]
    usage = result.context_wrapper.usage
    return {
        "text": ItemHelpers.text_message_outputs(result.new_items) or None,
        "calls": [[call.name, call.arguments] for call in calls],
        "parsed": result.final_output.model_dump() if isinstance(result.final_output, City) else None,
        "usage": [usage.input_tokens, usage.output_tokens],
        "ways": {"headers": once(headers)},
    }


async def run(**more: Any) -> dict[str, Any]:
    seen: list[dict[str, str]] = []
    return of_result(await Runner.run(agent(seen, instructions=SYSTEM, **more), USER), seen)


async def streamed(**more: Any) -> dict[str, Any]:
    seen: list[dict[str, str]] = []
    result = Runner.run_streamed(agent(seen, instructions=SYSTEM, **more), USER)
    raw = [event.data async for event in result.stream_events() if event.type == "raw_response_event"]
    told = of_result(result, seen)
    told["ways"]["body"] = once(extra(event.response) for event in raw if hasattr(event, "response"))
    return told


def input_list(turns: list[Any]) -> tuple[Any, ...]:
    """`Runner.run`, and the end of its `to_input_list()` as the next turns."""
    result = asyncio.run(Runner.run(agent([]), turns))
    return result.final_output, *result.to_input_list()[len(turns) :]


def streamed_list(turns: list[Any]) -> tuple[Any, ...]:
    """The same, streamed."""

    async def ended() -> Any:
        result = Runner.run_streamed(agent([]), turns)
        async for _ in result.stream_events():
            pass
        return result

    result = asyncio.run(ended())
    return result.final_output, *result.to_input_list()[len(turns) :]


results = {
    f"{way.__name__}-{kind}": asyncio.run(way(**more))
    for kind, more in selected(KINDS).items()
    for way in (run, streamed)
}
tell(results | conversations(input_list, streamed_list))
