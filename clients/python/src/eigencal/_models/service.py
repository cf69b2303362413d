"""The service itself: its parts and its errors."""

from typing import Literal

from eigencal._models.result import Result


class Health(Result):
    """The process is up."""

    status: Literal["ok"] | str
    """ok: the process answers."""
    version: str
    """Version of the service."""


class Ready(Result):
    """Every part works."""

    parts: dict[str, Literal["ok"] | str]
    """By part: store, embedder, llm."""
    status: Literal["ready"] | str
    """ready: prompts can be scored."""


class Root(Result):
    """Where everything is."""

    links: dict[str, str]
    """Paths by what is there."""
    name: str
    """What this is."""
    version: str
    """Version of the service."""


class ProblemItem(Result):
    """One thing that is wrong with the request."""

    loc: tuple[str | int, ...]
    """Where: body, query or path, then the field."""
    msg: str
    """What is wrong there."""


class Problem(Result):
    """An error (RFC 9457)."""

    code: str
    """What went wrong, for a program: stable."""
    detail: str
    """What went wrong, for a person."""
    errors: tuple[ProblemItem, ...] | None = None
    """For invalid requests: each thing wrong."""
    request_id: str | None = None
    """The request's id, also in X-Request-ID."""
    retryable: bool
    """Whether the same request may succeed later."""
    status: int
    """The HTTP status."""
    title: str
    """The HTTP status in words."""
    type: str
    """Names the kind of error; the same for every error of one code."""
