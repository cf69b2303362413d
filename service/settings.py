"""Settings: environment variables prefixed EIGENCAL_, read once and frozen. Only `app` reads them.

The descriptions of the fields are their documentation. A test checks the table in docs/operating.md.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from sqlalchemy import URL

PREFIX = "EIGENCAL_"
FOR_TESTS = f"{PREFIX}TEST_"
# Default limits on the tokens of an answer: a few sentences, and one line. Chats were cut short at 64, and
# on two cores twenty answers of 512 take longer than the default timeout.
CHAT_TOKENS, SHORT_TOKENS = 256, 64


class Settings(BaseSettings):
    """The settings of this process."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True
    )

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on.")
    write_timeout_s: float = Field(
        30.0,
        gt=0,
        allow_inf_nan=False,
        description="Longest wait for a caller that does not read its answer, in seconds.",
    )
    data_dir: Path = Field(Path("data"), description="Folder for weights and the default database.")
    database_url: str = Field(
        "", description="SQLite or Postgres URL; empty: an SQLite file in the data folder."
    )
    admin_key: SecretStr = Field(
        SecretStr(""), description="Bearer key of the admin routes; empty: they answer on loopback only."
    )
    score_key: SecretStr = Field(
        SecretStr(""),
        description="Bearer key of the scoring routes; empty: no key needed, on loopback only.",
    )
    allow_open: bool = Field(
        False, description="Serve beyond loopback without a score key, behind your own access control."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level logged."
    )

    llm_url: str = Field(
        "http://127.0.0.1:8001/v1",
        description="Base URL of the LLM server. `/v1` is added to a URL without a path.",
    )
    llm_model: str = Field("", description="Model to request; empty: the first that the server lists.")
    llm_api: Literal["chat", "completions"] = Field(
        "chat", description="API for prompts. `messages` always go to chat."
    )
    llm_api_key: SecretStr = Field(SecretStr(""), description="Bearer key sent to the LLM server.")
    llm_timeout_s: float = Field(
        120.0,
        gt=0,
        description="Longest wait for the LLM server's answers, including the time in the queue, in seconds.",
    )
    llm_slots: int = Field(
        64,
        ge=1,
        description="Maximum number of concurrent requests to the LLM server, chats and draws together. "
        "A calibration uses at most an eighth of them, and draws one row at a time while scores run. A "
        "quarter of this number (at least 16) may wait; further requests are refused.",
    )

    system_prompt: str = Field(
        "", description="System message before prompts, and before messages without one."
    )
    prompt_template: str = Field(
        "",
        description="Template around a prompt, with `{prompt}` in it. It may hold examples. Empty: the "
        "prompt alone.",
    )

    num_samples: int = Field(20, ge=2, le=256, description="Answers drawn for a score by default.")
    sampling_temperature: float = Field(0.5, gt=0, le=2, description="Sampling temperature of the LLM.")
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus sampling: probability mass kept.")
    top_k: int = Field(0, ge=0, description="Number of most likely tokens kept; 0: all.")
    max_tokens: int | None = Field(
        None,
        ge=1,
        le=32768,
        description=f"Maximum number of tokens of an answer; unset: {CHAT_TOKENS} with the chat API, "
        f"{SHORT_TOKENS} with completions.",
    )
    stop: Annotated[list[Annotated[str, Field(min_length=1, max_length=256)]], NoDecode] = Field(
        [], max_length=16, description="JSON list of strings that end an answer to a prompt."
    )

    target_error: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Allowed share of wrong answers among those let through; unset: 0.2.",
    )

    get_to_know: bool = Field(
        True,
        description="Ask an LLM that the service meets for the first time the "
        "[bundled questions](calibrating.md#getting-to-know-the-llm), for a first calibration.",
    )

    claims_from_characters: int = Field(
        400,
        ge=0,
        description="Answers of this length or more are also scored claim by claim; 0: only on request.",
    )

    chat_mode: Literal["off", "async", "on"] = Field(
        "on",
        description="[Mode](drop-in.md#modes) of a call to /v1 without the header `X-Eigencal`.",
    )
    chat_deadline_s: float = Field(
        10.0, ge=0, le=600, description="How long a complete answer of /v1 waits for its score, in seconds."
    )
    chat_num_samples: Annotated[int, Field(ge=0, le=256)] | Literal["auto"] = Field(
        "auto",
        description="Answers drawn to score an answer of /v1: `auto` draws the number that the calibration's "
        "report recommends, else 3; 0 draws none.",
    )
    abstain: bool = Field(
        False,
        description="[Withhold](drop-in.md#abstaining) answers of /v1 if the decision is to abstain or "
        "cannot be made. Callers cannot opt out.",
    )
    abstain_text: str = Field(
        "I am not sure enough to answer this.", description="Text in place of a withheld answer."
    )
    score_ttl_s: float = Field(
        3600.0,
        ge=0,
        le=604_800,
        allow_inf_nan=False,
        description="How long `GET /scores/{id}` returns a score, in seconds; 0: no score is stored.",
    )

    embedder: str = Field(
        "all-mpnet-base-v2", description="Sentence embedder: a packaged name, a folder, or a hub name."
    )
    kernel: Literal["facts", "paper"] = Field(
        "facts",
        description="How answers are compared: `facts`, by words not in the question, numbers, names, "
        "and negation; `paper`, by the cosine of their embeddings.",
    )
    compare: Literal["embeddings", "llm"] = Field(
        "embeddings",
        description="`llm`: the LLM also [compares](calibrating.md#which-compare) distinct answers; "
        "`EIGENCAL_KERNEL` is ignored. `compare` of a request takes precedence.",
    )
    self_check: bool = Field(
        True,
        description="Ask the LLM, in one token, whether the judged text is correct "
        "([self-check](scoring.md#self-check)). `self_check` of a request takes precedence.",
    )
    embedder_url: str = Field(
        "",
        description="Base URL of an OpenAI-style embeddings server, as for `EIGENCAL_LLM_URL`; "
        "`EIGENCAL_EMBEDDER` is its model. Empty: the service runs the embedder.",
    )
    embedder_api_key: SecretStr = Field(
        SecretStr(""), description="Bearer key sent to the embeddings server."
    )

    @field_validator("stop", mode="before")
    @classmethod
    def from_json(cls, stop: object) -> object:
        """Read the JSON of the variable here, so that an error names it like the other errors."""
        try:
            return json.loads(stop) if isinstance(stop, str) else stop
        except ValueError:
            raise PydanticCustomError("stop", "Write a JSON list of strings.") from None

    @field_validator("embedder")
    @classmethod
    def named(cls, embedder: str) -> str:
        """Refuse an empty name: as a path it is the working directory."""
        if not embedder.strip():
            raise PydanticCustomError("name", "Name an embedder, or unset the variable for the default.")
        return embedder

    @field_validator("admin_key", "score_key", "llm_api_key", "embedder_api_key")
    @classmethod
    def sendable(cls, key: SecretStr) -> SecretStr:
        """Refuse a key that a header cannot carry unchanged, as its callers would be locked out silently."""
        text = key.get_secret_value()
        if text != text.strip():
            raise PydanticCustomError(
                "key", "The key begins or ends with white space (the newline of the file it came from?)."
            )
        if not (text.isascii() and text.isprintable()):
            raise PydanticCustomError("key", "The key holds a character that cannot be sent in a header.")
        return key

    def resolved_database_url(self) -> str:
        """Return the database URL, or the URL of the default file if none is set."""
        file = URL.create("sqlite", database=str(self.data_dir / "eigencal.db"))  # quotes %, ? and #
        return self.database_url or file.render_as_string()

    def default_max_tokens(self, *, messages: bool) -> int:
        """Return the limit on the tokens of an answer to a request without its own."""
        if self.max_tokens is not None:
            return self.max_tokens
        return CHAT_TOKENS if messages or self.llm_api == "chat" else SHORT_TOKENS


def unknown_variables(names: Iterable[str]) -> list[str]:
    """Return the names that start with EIGENCAL_ and belong neither to a setting nor to the tests."""
    settings = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    return sorted(
        name
        for name in names
        if name.upper().startswith(PREFIX)
        and name.upper() not in settings
        and not name.upper().startswith(FOR_TESTS)
    )
