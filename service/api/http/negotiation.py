"""What a caller may ask for: JSON or a page by the Accept header, and the methods of a path for Allow."""

from typing import Any

from fastapi import FastAPI
from starlette.routing import Match
from starlette.types import Scope

VARY = {"Vary": "Accept"}
# Starlette's 405 names the methods of the first route alone.
METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")


def json_or_page(model: dict[str, Any], description: str) -> dict[str, Any]:
    """Return the OpenAPI entry of a response of which there is a page, too; `model`: as of the JSON alone."""
    content = {**model.get("content", {}), "text/html": {"schema": {"type": "string"}}}
    return {**model, "description": description, "content": content}


def prefers_html(accept: str) -> bool:
    """Tell whether HTML is accepted more than JSON (RFC 9110, section 12.5.1)."""
    return quality(accept, "text/html") > quality(accept, "application/json")


def quality(accept: str, media_type: str) -> float:
    """Return how much a media type is accepted, 0..1: by the most specific range that covers it."""
    ranges = {media_type: 2, media_type.partition("/")[0] + "/*": 1, "*/*": 0}
    best, found = -1, 0.0
    for part in accept.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if ranges.get(name, -1) > best:
            best, found = ranges[name], _q(parameters)
    return found


def _q(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return min(max(float(parameter[2:]), 0.0), 1.0)
            except ValueError:
                return 0.0
    return 1.0


def allowed_methods(app: FastAPI, scope: Scope) -> str:
    """Return the value of Allow for the path of a request."""

    def answers(method: str) -> bool:
        asked = {**scope, "method": method}
        return any(route.matches(asked)[0] is Match.FULL for route in app.router.routes)

    return ", ".join(filter(answers, METHODS))
