"""LangChain's ChatOpenAI: `invoke` and `stream`."""

from typing import Any

from langchain_openai import ChatOpenAI
from told import BASE_URL, CASES, KEY, KINDS, MODEL, conversations, ours, tell

TURNS = [(turn["role"], turn["content"]) for turn in CASES["messages"]]


def of_message(message: Any) -> dict[str, Any]:
    metadata, usage = message.response_metadata, message.usage_metadata
    return {
        "text": message.text or None,
        "calls": [[call["name"], call["args"]] for call in message.tool_calls],
        "finish": metadata.get("finish_reason") or metadata.get("status"),
        "usage": usage and [usage["input_tokens"], usage["output_tokens"]],
        "ways": {
            "body": metadata.get("uncertainty") or message.additional_kwargs.get("uncertainty"),
            "headers": ours(metadata.get("headers", {})),
        },
    }


def run(**settings: Any) -> None:
    """Ask and print everything, by a `ChatOpenAI` with these settings."""
    llm = ChatOpenAI(
        base_url=BASE_URL,
        api_key=KEY,
        model=MODEL,
        **CASES["sampling"],
        max_retries=0,
        stream_usage=True,
        include_response_headers=True,
        **settings,
    )

    def invoke(**more: Any) -> dict[str, Any]:
        return of_message(llm.invoke(TURNS, **more))

    def added_up(turns: list[Any], **more: Any) -> Any:
        whole, *rest = llm.stream(turns, **more)
        for chunk in rest:
            whole += chunk
        return whole

    def streamed(**more: Any) -> dict[str, Any]:
        return of_message(added_up(TURNS, **more))

    def invoked(turns: list[Any]) -> tuple[str | None, Any]:
        """`invoke`, and its message as the next turn."""
        found = llm.invoke(turns)
        return found.text, found

    def collected(turns: list[Any]) -> tuple[str | None, Any]:
        """`stream`, and the sum of its chunks as the next turn."""
        found = added_up(turns)
        return found.text, found

    results = {
        f"{way.__name__}-{kind}": way(**more) for kind, more in KINDS.items() for way in (invoke, streamed)
    }
    tell(results | conversations(invoked, collected))


if __name__ == "__main__":
    run()
