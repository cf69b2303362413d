"""What browsers need: content security policies, JSON or a page, and redirects to the console."""

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse

HTML = "text/html"
VARY = {"Vary": "Accept"}
CLOSED = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# The service's pages have inline styles and plots, and no scripts.
PAGE = f"{CLOSED}; style-src 'unsafe-inline'; img-src data:"
# Headers of a page that the console shows in a frame.
FRAMED = {
    "Content-Security-Policy": PAGE.replace("frame-ancestors 'none'", "frame-ancestors 'self'"),
    "X-Frame-Options": "SAMEORIGIN",
}


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
