"""LlamaIndex's OpenAILike: `chat` and `stream_chat`."""

from typing import Any

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike
from told import BASE_URL, CASES, KEY, KINDS, MODEL, conversations, counts, once, tell

llm = OpenAILike(
    api_base=BASE_URL,
    api_key=KEY,
    model=MODEL,
    is_chat_model=True,
    is_function_calling_model=True,
    max_retries=0,
    **CASES["sampling"],
)
TURNS = [ChatMessage(role=turn["role"], content=turn["content"]) for turn in CASES["messages"]]


def of_response(response: Any, raws: list[Any]) -> dict[str, Any]:
    calls = response.message.additional_kwargs.get("tool_calls") or []
    choices = [raw.choices[0] for raw in raws if raw.choices]
    return {
        "text": response.message.content or None,
        "calls": [[call.function.name, call.function.arguments] for call in calls],
        "finish": once(choice.finish_reason for choice in choices),
        "usage": once(counts(raw.usage) for raw in raws),
        "ways": {
            "body": once((raw.model_extra or {}).get("uncertainty") for raw in raws),
            "message": response.message.additional_kwargs.get("uncertainty"),
        },
    }


def chat(**more: Any) -> dict[str, Any]:
    response = llm.chat(TURNS, **more)
    return of_response(response, [response.raw])


def streamed(**more: Any) -> dict[str, Any]:
    responses = list(llm.stream_chat(TURNS, stream_options={"include_usage": True}, **more))
    return of_response(responses[-1], [response.raw for response in responses])


def as_messages(turns: list[Any]) -> list[ChatMessage]:
    return [turn if isinstance(turn, ChatMessage) else ChatMessage(**turn) for turn in turns]


def message(turns: list[Any]) -> tuple[str | None, Any]:
    """`chat`, and its message as the next turn."""
    found = llm.chat(as_messages(turns)).message
    return found.content, found


def last_message(turns: list[Any]) -> tuple[str | None, Any]:
    """`stream_chat`, and the message of its last response as the next turn."""
    *_, last = llm.stream_chat(as_messages(turns))
    return last.message.content, last.message


results = {f"{way.__name__}-{kind}": way(**more) for kind, more in KINDS.items() for way in (chat, streamed)}
tell(results | conversations(message, last_message))
