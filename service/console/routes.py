"""GET /console/ and its files, and the session of a browser: POST, GET and DELETE /console/session.

All URLs are relative, so that the console works behind a proxy that adds a path prefix.
"""

from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from service import __version__
from service.errors import BadKey, MissingKey, ScopeRequired
from service.http.bodies import RequestModel
from service.http.keys import COOKIE, Keys, KeysDep, cookie_key, cookie_of, is_foreign
from service.http.pages import redirect
from service.store.keys import Scope

router = APIRouter(include_in_schema=False)
STATIC = Path(__file__).parent / "static"
GET = ["GET", "HEAD"]
FILE_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}
NOT_STORED = {"Cache-Control": "no-store"}
COOKIE_OPTIONS: dict[str, Any] = {"httponly": True, "samesite": "strict"}
MAX_KEY_CHARS = 2000  # browsers keep cookies of up to 4,096 bytes


class SignIn(RequestModel):
    """The key of a person who signs in."""

    key: str = Field(min_length=1, max_length=MAX_KEY_CHARS)


class Session(BaseModel):
    """The routes that are open to this caller.

    score, admin: whether the routes of the scope are open, also if they need no key. signed_in: whether the
    cookie holds a valid key. version: of the service.
    """

    score: bool
    admin: bool
    signed_in: bool
    version: str = __version__


@router.api_route("/console", methods=GET)
async def console(request: Request) -> Response:
    """Redirect to the page: its relative URLs need the slash."""
    return redirect(request, "console/")


@router.post("/console/session")
async def sign_in(request: Request, response: Response, body: SignIn, keys: KeysDep) -> dict[str, str]:
    """Keep a key in a cookie until the browser ends. Return its scope.

    Raises ScopeRequired for requests from pages of other sites, which could sign the user in with their own
    key; BadKey; StoreUnavailable.
    """
    if is_foreign(request):
        raise ScopeRequired("Sign in from the console's own page (headers Sec-Fetch-Site, Origin and Host).")
    key = body.key.strip()
    scope = await keys.scope_of(key)
    if scope is None:
        raise BadKey("The key is not valid.")
    response.headers.update(NOT_STORED)
    # A false header changes only the caller's own cookie.
    is_https = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
    response.set_cookie(COOKIE, cookie_of(key), secure=is_https, **COOKIE_OPTIONS)
    return {"scope": scope}


@router.get("/console/session")
async def get_session(request: Request, response: Response, keys: KeysDep) -> Session:
    """Return the scopes that are open to this caller. Raises StoreUnavailable."""
    response.headers.update(NOT_STORED)
    key = cookie_key(request)
    return Session(
        score=await _passes(keys, request, "score"),
        admin=await _passes(keys, request, "admin"),
        signed_in=bool(key) and await keys.scope_of(key) is not None,
    )


async def _passes(keys: Keys, request: Request, scope: Scope) -> bool:
    try:
        await keys.admit(request, scope)
    except (MissingKey, BadKey, ScopeRequired):
        return False
    return True


@router.delete("/console/session", status_code=204)
async def sign_out() -> Response:
    """Delete the cookie."""
    response = Response(status_code=204, headers=NOT_STORED)
    response.delete_cookie(COOKIE, **COOKIE_OPTIONS)
    return response


class _Files(StaticFiles):
    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers.update(FILE_HEADERS)
        return response


def files() -> ASGIApp:
    """Return the application that serves the files of the page, compressed."""
    return GZipMiddleware(_Files(directory=STATIC, html=True))
