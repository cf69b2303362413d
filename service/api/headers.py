"""Headers: what a browser may do with our answers, what a caller accepts, which methods a path allows."""

import base64
import hashlib
import re

from fastapi import FastAPI
from starlette.routing import Match
from starlette.types import Scope

Header = tuple[bytes, bytes]

CLOSED = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# A page of ours has its style and its plots within, and no script.
PAGE = f"{CLOSED}; style-src 'unsafe-inline'; img-src data:"
SECURITY_HEADERS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
POLICY = b"content-security-policy"
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)

VARY = {"Vary": "Accept"}
# Starlette's 405 names the methods of the first route alone.
METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")


def policy_for(headers: list[Header]) -> list[Header]:
    """Return the policy for a response with these headers; none where it brings its own."""
    given = {name.lower(): value for name, value in headers}
    if POLICY in given:
        return []
    html = given.get(b"content-type", b"").startswith(b"text/html")
    return [(POLICY, (PAGE if html else CLOSED).encode())]


def policy_with_scripts(page: str) -> str:
    """Return the policy of a page whose own scripts may run, and which may load from here and call us."""
    hashes = [hashlib.sha256(script.encode()).digest() for script in _SCRIPT.findall(page)]
    own = " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in hashes)
    return (
        f"{CLOSED}; script-src 'self' {own}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'"
    )


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
