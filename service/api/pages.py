"""Content negotiation between JSON and pages, and redirects of browsers to the console."""

from urllib.parse import quote

from fastapi import Request
from starlette.responses import RedirectResponse

HTML = "text/html"
VARY = {"Vary": "Accept"}


def prefers(request: Request, media_type: str) -> bool:
    """Return True if the Accept header names a media type, such as HTML in browsers, and not JSON."""
    accept = request.headers.get("accept", "").lower()
    return media_type in accept and "application/json" not in accept


def redirect(request: Request, path: str) -> RedirectResponse:
    """Return a redirect to a path below the root. It is relative: a proxy may add a path prefix."""
    up = "../" * (request.scope["path"].count("/") - 1)
    return RedirectResponse(up + path, 303, VARY)


def to_sign_in(request: Request) -> RedirectResponse:
    """Return a redirect to the console's sign-in, which then leads back to the requested page."""
    query = request.url.query
    wanted = request.scope["path"] + (f"?{query}" if query else "")
    return redirect(request, f"console/#/sign-in?next={quote(wanted, safe='')}")
