"""Calls of OpenAI's API: what the server reads of them, and what it refuses."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import JSONResponse

from demo.model import MAX_CONTEXT
from service.llm.prompt import Sampling

MAX_CHOICES = 256
MAX_ALTERNATIVES = 20
# What a call that does not set them gets. A model of this size writes nonsense at a temperature of 1.
TEMPERATURE, MAX_TOKENS = 0.5, 64
# Members that do not change an answer.
IGNORED = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "request_id",
        "safety_identifier",
        "service_tier",
        "store",
        "tool_choice",  # tools are refused
        "truncation",  # too long prompts are refused
        "user",
    }
)
# Values of other members that change nothing. Neither do null, false, 0 and empty values.
NEUTRAL: Mapping[str, Any] = {
    "best_of": 1,
    "modalities": ["text"],
    "repetition_penalty": 1,
    "response_format": {"type": "text"},
    "text": {"format": {"type": "text"}},
}


class Refusal(Exception):
    """A call is refused. `param`: the refused member of the body. `code`: error code of OpenAI's API."""

    def __init__(
        self,
        message: str,
        param: str | None = None,
        code: str | None = None,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
    ) -> None:
        super().__init__(message)
        self.status = status
        self._error = {"message": message, "type": kind, "param": param, "code": code}

    def response(self) -> JSONResponse:
        """Return the refusal in the format of OpenAI's API."""
        return JSONResponse({"error": self._error}, self.status)


class Part(BaseModel):
    """A part of a turn: text alone."""

    type: Literal["text", "input_text", "output_text"]
    text: str


class Turn(BaseModel):
    """A turn of a conversation. Members other than the text are refused if they hold something."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part] | None = None
    type: Literal["message"] = "message"  # of the Responses API
    id: str | None = None
    status: str | None = None

    def message(self) -> dict[str, str]:
        """Return the turn for the chat template. Parts are joined by newlines, as in vLLM."""
        refuse_members({f"turn.{name}": value for name, value in (self.model_extra or {}).items()})
        parts = self.content if isinstance(self.content, list) else []
        text = self.content if isinstance(self.content, str) else "\n".join(part.text for part in parts)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class StreamOptions(BaseModel):
    """Options of a stream."""

    include_usage: bool | None = None


class Call(BaseModel):
    """The members that the calls share. A null stands for a member that is left out."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)
    prompt_member: ClassVar[str]

    model: str | None = None
    stream: bool | None = None
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Return the call in a body of JSON. Raises Refusal."""
        try:
            call = cls.model_validate_json(body)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            where = [str(part) for part in fault["loc"]]
            message = ": ".join([".".join(where), fault["msg"]] if where else [fault["msg"]])
            raise Refusal(message, where[0] if where else None) from None
        refuse_members(call.model_extra or {})
        return call

    @property
    @abstractmethod
    def limit(self) -> int | None:
        """Return the limit on the tokens of an answer that the call sets."""

    def sampling(self, num_prompt_tokens: int) -> Sampling:
        """Return the sampling parameters. Raises Refusal if prompt and answer exceed the context."""
        prompt, limit = num_prompt_tokens, self.limit or MAX_TOKENS
        if prompt + limit > MAX_CONTEXT:
            raise Refusal(
                f"This model's maximum context length is {MAX_CONTEXT} tokens. However, you requested "
                f"{prompt + limit} tokens ({prompt} in the {self.prompt_member}, {limit} in the completion). "
                f"Please reduce the length of the {self.prompt_member} or completion.",
                self.prompt_member,
                "context_length_exceeded",
            )
        temperature = TEMPERATURE if self.temperature is None else self.temperature
        return Sampling(temperature, self.top_p or 1.0, max_tokens=limit)


class CompletionCall(Call):
    """The members that chats and completions share."""

    n: Annotated[int | None, Field(ge=1, le=MAX_CHOICES)] = None
    top_k: Annotated[int | None, Field(ge=-1)] = None  # of vLLM; 0 and -1: all tokens
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    max_completion_tokens: Annotated[int | None, Field(ge=1)] = None
    stop: str | list[str] | None = None
    seed: int | None = None
    stream_options: StreamOptions | None = None

    @property
    def limit(self) -> int | None:
        """Return the limit on the tokens of an answer that the call sets."""
        return self.max_completion_tokens or self.max_tokens

    @property
    @abstractmethod
    def num_alternatives(self) -> int | None:
        """Return the number of alternatives to each token; None without log-probabilities."""

    def sampling(self, num_prompt_tokens: int) -> Sampling:
        """Return the sampling parameters. Raises Refusal if prompt and answer exceed the context."""
        shared = super().sampling(num_prompt_tokens)
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return Sampling(
            shared.temperature,
            shared.top_p,
            max(self.top_k or 0, 0),
            shared.max_tokens,
            tuple(filter(None, stop)),
            self.seed,
        )


class ChatCall(CompletionCall):
    """A call of /v1/chat/completions."""

    prompt_member = "messages"

    messages: Annotated[list[Turn], Field(min_length=1)]
    logprobs: bool | None = None
    top_logprobs: Annotated[int | None, Field(ge=0, le=MAX_ALTERNATIVES)] = None

    @property
    def num_alternatives(self) -> int | None:
        """Return the number of alternatives to each token; None without log-probabilities."""
        if self.top_logprobs and not self.logprobs:
            raise Refusal("top_logprobs needs logprobs.", "top_logprobs")
        return self.top_logprobs or 0 if self.logprobs else None


class TextCall(CompletionCall):
    """A call of /v1/completions."""

    prompt_member = "prompt"

    prompt: str | Annotated[list[str], Field(min_length=1, max_length=1)]
    logprobs: Annotated[int | None, Field(ge=0, le=MAX_ALTERNATIVES)] = None

    @property
    def text(self) -> str:
        """Return the prompt."""
        return self.prompt if isinstance(self.prompt, str) else self.prompt[0]

    @property
    def num_alternatives(self) -> int | None:
        """Return the number of alternatives to each token; None without log-probabilities."""
        return self.logprobs


class ResponsesCall(Call):
    """A call of /v1/responses: text alone, and no state on the server."""

    prompt_member = "input"

    input: str | Annotated[list[Turn], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Annotated[int | None, Field(ge=1)] = None
    include: list[Literal["message.output_text.logprobs"]] | None = None
    top_logprobs: Annotated[int | None, Field(ge=0, le=MAX_ALTERNATIVES)] = None

    @property
    def limit(self) -> int | None:
        """Return the limit on the tokens of an answer that the call sets."""
        return self.max_output_tokens

    def turns(self) -> list[dict[str, str]]:
        """Return the conversation for the chat template."""
        before = [{"role": "system", "content": self.instructions}] if self.instructions else []
        if isinstance(self.input, str):
            return [*before, {"role": "user", "content": self.input}]
        return [*before, *(turn.message() for turn in self.input)]


def refuse_members(members: Mapping[str, Any]) -> None:
    """Raise Refusal for members that the server does not know, unless their values change nothing."""
    refused = sorted(
        name[:40]
        for name, value in members.items()
        if value and name not in IGNORED and NEUTRAL.get(name) != value
    )
    if refused:
        message = f"This server does not support these parameters: {', '.join(refused[:10])}."
        raise Refusal(message, refused[0], "unsupported_parameter")
