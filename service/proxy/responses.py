"""Where OpenAI's Responses API differs: its items are turns of a chat, its output messages one answer."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from service.errors import Unscorable
from service.ids import new_id
from service.llm.wire import NONSENSE
from service.proxy.answer import Answer, event_of, with_uncertainty

LOGPROBS = "message.output_text.logprobs"
# Members that stand for turns outside `input`. The last two are vLLM's.
STORED = ("previous_response_id", "conversation", "prompt", "previous_response", "previous_input_messages")
# Members that chats lack: converted to others, or without effect on the turns and tools that are converted.
_CONVERTED = frozenset(
    {"input", "instructions", "tools", "tool_choice", "text", "reasoning", "max_output_tokens"}
)
_ASIDE = frozenset({"include", "truncation", "max_tool_calls", "background", "enable_response_messages"})
# Members of a response that do not depend on the text of the answer.
_ABOUT = frozenset(
    {"id", "object", "created_at", "completed_at", "model", "status", "incomplete_details", "usage"}
    | {"instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "previous_response_id"}
    | {"reasoning", "service_tier", "store", "temperature", "text", "tool_choice", "tools", "top_logprobs"}
    | {"top_p", "truncation", "user", "background", "max_tool_calls", "safety_identifier", "prompt_cache_key"}
)
_MESSAGE_HEAD = frozenset({"id", "type", "role", "status"})
_ENDS = frozenset({"response.completed", "response.incomplete"})
_NOT_SPOKEN = frozenset({"reasoning", "compaction"})  # types of items that are no part of an answer
_FAILURES = frozenset({"response.failed", "response.cancelled", "error"})


class ResponseAnswer(Answer):
    """The text of a response's output messages, read whole or from events.

    If any message has the phase `final_answer`, only such messages count. Messages are joined by newlines.
    Responses draw one answer per call, so the samples are chats with the same turns.
    """

    path = "/responses"
    # All keys share the server's account, so a stored response could be read with another key.
    always: ClassVar[Mapping[str, Any]] = MappingProxyType({"store": False})

    def __init__(self) -> None:
        super().__init__()
        self._items: list[dict[str, Any]] = []  # the finished items of a stream

    def chat_of(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the chat with the same turns. Raises Unscorable if no chat has them."""
        try:
            return _chat(body)
        except NONSENSE:
            raise Unscorable(
                "unreadable_request", "The call's members are not those of a response."
            ) from None

    def asking_logprobs(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body with the log-probabilities among the members that it asks to include."""
        return {**body, "include": [*(body.get("include") or ()), LOGPROBS]}

    def take(self, payload: Mapping[str, Any], size: int = 0) -> bool:
        """Add a response or an event.

        At the end of a stream, the whole items count if they have several messages, or if no event had text.
        """
        if "output" in payload:
            return super().take(_completion(payload))
        is_finished = super().take(_chunk(payload), size)
        if payload.get("type") == "response.output_item.done" and self.failure is None:
            self._items += _objects([payload.get("item")])
        if is_finished:
            self.is_over = True
            response = payload["response"]
            if len(_messages(response)) < len(_messages({"output": self._items})):
                response = {**response, "output": self._items}
            if len(_messages(response)) > 1 or ("output" in response and not self.has_begun):
                self.restart()
                super().take(_completion(response))
        return is_finished

    def withheld(self, payload: Mapping[str, Any], text: str) -> dict[str, Any]:
        """Return the response with `text` as its only output."""
        output = [_message(text)]
        return _about(payload) | {"status": "completed", "incomplete_details": None, "output": output}

    def let_through(self, payload: Mapping[str, Any], judged: str | None) -> dict[str, Any]:
        """Return the response with one message; `judged` None: with its tool calls and refusals."""
        output = [_message(judged)] if judged is not None else _textless_items(payload.get("output"))
        return _about(payload) | {"output": output}

    def streamed(self, payload: Mapping[str, Any], document: Mapping[str, Any]) -> bytes:
        """Return the events of a response with its score."""
        begun = {**payload, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
        sent: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
        for index, item in enumerate(_objects(payload.get("output"))):
            sent += _events_of_item(index, item)
        end = "response.incomplete" if payload.get("status") == "incomplete" else "response.completed"
        sent.append(with_uncertainty({"type": end, "response": payload}, document))
        return b"".join(event_of({**event, "sequence_number": i}) for i, event in enumerate(sent))


class Compaction(Answer):
    """A conversation that the LLM server has shortened. It is not an answer, so it is never judged."""

    path = "/responses/compact"


def _events_of_item(index: int, item: Mapping[str, Any]) -> list[dict[str, Any]]:
    at = {"item_id": item.get("id"), "output_index": index}
    begun = {**item, **({"status": "in_progress"} if "status" in item else {})}
    inner = list[dict[str, Any]]()
    if item.get("type") == "message":
        begun["content"] = []
        for place, part in enumerate(_objects(item.get("content"))):
            inner += _events_of_part({**at, "content_index": place}, part)
    elif item.get("type") == "function_call":
        begun["arguments"] = ""
        kind, arguments = "response.function_call_arguments", item.get("arguments")
        done = {"type": f"{kind}.done", **at, "name": item.get("name"), "arguments": arguments}
        inner = [{"type": f"{kind}.delta", **at, "delta": arguments}, done]
    begin = {"type": "response.output_item.added", "output_index": index, "item": begun}
    return [begin, *inner, {"type": "response.output_item.done", "output_index": index, "item": item}]


def _events_of_part(at: Mapping[str, Any], part: Mapping[str, Any]) -> list[dict[str, Any]]:
    is_refusal = part.get("type") == "refusal"
    name, kind = ("refusal", "refusal") if is_refusal else ("text", "output_text")
    of_text = {**at} if is_refusal else {**at, "logprobs": []}
    return [
        {"type": "response.content_part.added", **at, "part": {**part, name: ""}},
        {"type": f"response.{kind}.delta", **of_text, "delta": part.get(name)},
        {"type": f"response.{kind}.done", **of_text, name: part.get(name)},
        {"type": "response.content_part.done", **at, "part": part},
    ]


# Calls


def _chat(body: Mapping[str, Any]) -> dict[str, Any]:
    for name in STORED:
        if body.get(name):
            raise _stored(name)
    if body.get("background"):
        raise Unscorable("not_convertible", "The answer of a call in the background is fetched later.")
    text, reasoning = body.get("text") or {}, body.get("reasoning") or {}
    choice: Any = body.get("tool_choice")
    wanted: Any = text.get("format")
    is_schema = wanted and wanted["type"] not in ("text", "json_object")
    passed = {name: value for name, value in body.items() if name not in _CONVERTED | _ASIDE}
    converted = {
        "tools": [_nested(tool, "function") for tool in body.get("tools") or ()],
        "tool_choice": _nested(choice, "function") if isinstance(choice, dict) else choice,
        "response_format": _nested(wanted, "json_schema") if is_schema else wanted,
        "verbosity": text.get("verbosity"),
        "reasoning_effort": reasoning.get("effort"),
        "max_tokens": body.get("max_output_tokens"),
        "logprobs": LOGPROBS in (body.get("include") or ()),
    }
    # Some servers also read the members of chats.
    return {**passed, **{n: value for n, value in converted.items() if value}, "messages": _turns(body)}


def _stored(name: str) -> Unscorable:
    return Unscorable("not_convertible", f"`{name}` stands for turns that are not in `input`.")


def _not_convertible(kind: object) -> Unscorable:
    return Unscorable(
        "not_convertible", f"The samples are chats, which have no counterpart of `{str(kind)[:40]}`."
    )


def _turns(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the input as turns of a chat. Reasoning is left out, as chat templates do."""
    turns: list[dict[str, Any]] = []
    if body.get("instructions"):
        turns.append({"role": "system", "content": body["instructions"]})
    items = body["input"]
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        match item.get("type") or ("message" if "role" in item else "item_reference"):
            case "message":
                content, last = _content(item["content"]), turns[-1] if turns else {}
                if item["role"] == "assistant" and last.get("tool_calls") and last["content"] is None:
                    last["content"] = content
                else:
                    turns.append({"role": item["role"], "content": content})
            case "function_call":
                # In a chat, the text and the calls of an assistant are one turn.
                if not turns or turns[-1]["role"] != "assistant":
                    turns.append({"role": "assistant", "content": None})
                function = {"name": item["name"], "arguments": item["arguments"]}
                call = {"id": item["call_id"], "type": "function", "function": function}
                turns[-1].setdefault("tool_calls", []).append(call)
            case "function_call_output":
                content = _content(item["output"])
                turns.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})
            case "reasoning":
                pass
            case "item_reference":
                raise _stored("item_reference")
            case kind:
                raise _not_convertible(kind)
    return turns


def _content(content: str | list[Any]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    parts = [_part(part) for part in content]
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    match part["type"]:
        case "input_text" | "output_text" | "text":
            return {"type": "text", "text": part["text"]}
        case "refusal":
            return {"type": "refusal", "refusal": part["refusal"]}
        case "input_image" if part.get("image_url"):
            image = {"url": part["image_url"], "detail": part.get("detail") or "auto"}
            return {"type": "image_url", "image_url": image}
        case kind:
            raise _not_convertible(kind)


def _nested(flat: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return a tool, a choice of one or a format as chats have it: its members below its type."""
    if flat["type"] != kind:
        raise _not_convertible(flat["type"])
    members = {name: value for name, value in flat.items() if name != "type" and value is not None}
    return {"type": kind, kind: members}


# Answers


def _completion(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return a response as a chat completion."""
    kinds = {str(item.get("type")) for item in _objects(response["output"])}
    messages = _messages(response)
    final = [message for message in messages if message.get("phase") == "final_answer"]
    texts, tokens = list[dict[str, Any]](), list[dict[str, Any]]()
    for message in final or messages:
        if texts:
            texts.append({"text": "\n"})
            tokens += [{"token": "\n"}] if tokens else []  # it has no log-probability
        texts += (spoken := _parts(message, "output_text"))
        tokens += [token for part in spoken for token in _objects(part.get("logprobs"))]
    answer = {
        "content": texts or None,
        "refusal": any(_parts(message, "refusal") for message in final or messages),
        "reasoning": bool(kinds & _NOT_SPOKEN),
        "tool_calls": bool(kinds - _NOT_SPOKEN - {"message"}),
    }
    choice = {"message": answer, "logprobs": {"content": tokens}, "finish_reason": _finish_reason(response)}
    return {"id": response.get("id"), "model": response.get("model"), "choices": [choice]}


def _chunk(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event as a chunk of a chat; most events make a chunk without a choice."""
    kind, response, item = str(event.get("type")), event.get("response"), event.get("item")
    if kind in _FAILURES or (event.get("error") and "type" not in event):
        return {"error": event.get("error") or kind}
    choice: dict[str, Any] | None = None
    if kind == "response.output_text.delta":
        tokens = {"content": _objects(event.get("logprobs"))}
        choice = {"delta": {"content": event.get("delta")}, "logprobs": tokens}
    elif kind in _ENDS and isinstance(response, dict):
        choice = {"delta": {}, "finish_reason": _finish_reason(response)}
    elif kind.startswith("response.refusal."):
        choice = {"delta": {"refusal": True}}
    elif kind.startswith("response.reasoning"):
        choice = {"delta": {"reasoning": True}}
    elif (
        kind.startswith("response.output_item.") and isinstance(item, dict) and item.get("type") != "message"
    ):
        choice = {"delta": {"reasoning" if item.get("type") in _NOT_SPOKEN else "tool_calls": True}}
    about = response if isinstance(response, dict) else {}
    names = {name: about.get(name) for name in ("id", "model")}
    return {**names, "choices": [choice] if choice else []}


def _finish_reason(response: Mapping[str, Any]) -> str:
    if response.get("status") in ("failed", "cancelled"):
        return "error"
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    if reason is None:
        return "length" if response.get("status") == "incomplete" else "stop"
    return "length" if reason in ("max_output_tokens", "max_tokens") else "content_filter"


def _messages(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages that have a text or a refusal."""
    return [
        item
        for item in _objects(response.get("output"))
        if item.get("type") == "message" and (_parts(item, "output_text") or _parts(item, "refusal"))
    ]


def _parts(message: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the parts of a kind; of texts, those that are not empty."""
    return [
        part
        for part in _objects(message.get("content"))
        if part.get("type") == kind and (kind == "refusal" or part.get("text"))
    ]


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _message(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    message = {"id": new_id("msg"), "type": "message", "role": "assistant", "status": "completed"}
    return {**message, "content": [part]}


def _textless_items(items: object) -> list[dict[str, Any]]:
    """Return the calls of functions, and the messages with only their refusals."""
    kept = []
    for item in _objects(items):
        if item.get("type") == "function_call":
            kept.append(item)
        elif item.get("type") == "message":
            refusals = [part for part in _objects(item.get("content")) if part.get("type") == "refusal"]
            head = {name: value for name, value in item.items() if name in _MESSAGE_HEAD}
            kept.append({**head, "content": refusals})
    return kept


def _about(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if name in _ABOUT} | {"error": None}
