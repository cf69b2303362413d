"""openai-python, the asynchronous client: `create` in one piece and streamed, and `stream()`."""

import asyncio
from typing import Any

import openai
from told import ASK, BASE_URL, KEY, KINDS, USAGE, conversations, extra, of_chunks, of_completion, tell


async def create(client: openai.AsyncOpenAI, **more: Any) -> dict[str, Any]:
    raw = await client.chat.completions.with_raw_response.create(**ASK, **more)
    return of_completion(raw.parse(), raw.headers)


async def streamed(client: openai.AsyncOpenAI, **more: Any) -> dict[str, Any]:
    raw = await client.chat.completions.with_raw_response.create(**ASK, stream=True, **USAGE, **more)
    return of_chunks([chunk async for chunk in raw.parse()], raw.headers)


async def helper(client: openai.AsyncOpenAI, **more: Any) -> dict[str, Any]:
    async with client.chat.completions.stream(**ASK, **USAGE, **more) as stream:
        chunks = [event.chunk async for event in stream if event.type == "chunk"]
        final = await stream.get_final_completion()
    told = of_completion(final, {})
    told["ways"] = {
        "body": extra(final),
        "message": extra(final.choices[0].message),
        "chunk": of_chunks(chunks, {})["ways"]["body"],
    }
    return told


async def main() -> dict[str, Any]:
    async with openai.AsyncOpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0) as client:
        return {
            f"{way.__name__}-{kind}": await way(client, **more)
            for kind, more in KINDS.items()
            for way in (create, streamed, helper)
        }


async def final(turns: list[Any]) -> Any:
    async with openai.AsyncOpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0) as client:
        async with client.chat.completions.stream(**{**ASK, "messages": turns}) as stream:
            return (await stream.get_final_completion()).choices[0].message


def final_message(turns: list[Any]) -> tuple[str | None, Any]:
    """`stream()`, and the message of its final completion as the next turn."""
    found = asyncio.run(final(turns))
    return found.content, found


tell(asyncio.run(main()) | conversations(final_message))
