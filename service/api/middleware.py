"""ASGI middleware for every request: its id, limits on bodies and answers, unexpected errors."""

import asyncio
import logging
import re
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.errors import ProblemResponse, error_response, internal_body, problem_body, route_of
from service.errors import BodyTooLarge, Overloaded

log = logging.getLogger(__name__)

# The caller's `traceparent` (W3C Trace Context), inherited by all tasks of its request.
TRACEPARENT: ContextVar[str] = ContextVar("traceparent", default="")

# A caller's id is written to logs and headers, so it must be printable, short and without spaces.
SANE_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}\Z")
STOPPING = "The service is stopping, and the answer was not ready in time."
MAX_BODY_BYTES = 8 << 20
TWO_LENGTHS = "A request may have Content-Length or, in HTTP/1.1, Transfer-Encoding, but not both."
UPLOAD_PATH = "/calibrate"  # it has larger limits, see `admin.uploads`

CLOSED = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# The service's pages have inline styles and plots, and no scripts.
PAGE = f"{CLOSED}; style-src 'unsafe-inline'; img-src data:"
# Headers of a page that the console shows in a frame.
FRAMED = {
    "Content-Security-Policy": PAGE.replace("frame-ancestors 'none'", "frame-ancestors 'self'"),
    "X-Frame-Options": "SAMEORIGIN",
}
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


class RequestContext:
    """Gives each request an id (the caller's, if it is well-formed) and each response its security headers.

    Responds with 500 if the application fails before the response starts, and with 503 if a stop of the
    service ends the request. `kinds`: the paths that are counted, with their kinds. `responded` is called
    with the kind, the status and the seconds until the start of each response on these paths.
    """

    def __init__(
        self,
        app: ASGIApp,
        kinds: Mapping[str, str] = MappingProxyType({}),
        responded: Callable[[str, int, float], object] = lambda *_: None,
    ) -> None:
        self._app = app
        self._kinds = kinds
        self._responded = responded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked, path = Headers(scope=scope), scope["path"]
        request_id = asked.get("x-request-id", "")
        if not SANE_ID.match(request_id):
            request_id = f"req_{secrets.token_hex(8)}"
        scope["eigencal.request_id"] = request_id
        scope["eigencal.arrived"] = arrived = time.perf_counter()
        traceparent = asked.get("traceparent", "")
        kind = self._kinds.get(path) if scope["method"] == "POST" else None
        trace = TRACEPARENT.set(traceparent)
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                if kind is not None:
                    self._responded(kind, message["status"], time.perf_counter() - arrived)
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                is_page = headers.get("content-type", "").startswith("text/html")
                headers.setdefault("content-security-policy", PAGE if is_page else CLOSED)
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            log.debug("request %s: the caller disconnected while sending", request_id)
        except Exception as error:
            # The head of the response is sent and cannot be changed, so the response is cut off.
            if started:
                log.exception("unexpected error in request %s, %s", request_id, route_of(scope))
                raise
            response = ProblemResponse(internal_body(request_id), failure=error)
            await response(scope, receive, send_with_id)
        except asyncio.CancelledError:  # the service stops, and its time to wait is over
            if not started:
                await error_response(Overloaded(STOPPING), request_id)(scope, receive, send_with_id)
            raise
        finally:
            TRACEPARENT.reset(trace)


class StartupErrors:
    """Reports in one line why the application cannot start, for errors that are meant for the operator."""

    def __init__(self, app: ASGIApp, errors: tuple[type[Exception], ...]) -> None:
        self._app = app
        self._errors = errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or the start and stop of the application."""

        async def plainly(message: Message) -> None:
            error = sys.exc_info()[1]  # Starlette sends its traceback while it handles the error
            if message["type"] == "lifespan.startup.failed" and isinstance(error, self._errors):
                message = {**message, "message": f"Cannot start: {' '.join(str(error).split())}"}
            await send(message)

        await self._app(scope, receive, plainly if scope["type"] == "lifespan" else send)


class BodyLimit:
    """Refuses bodies over a size, by Content-Length or while they arrive. Uploads have limits of their own.

    A body with two lengths is refused: a proxy and the service could disagree on where it ends.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        declared, is_chunked = headers.get("content-length", ""), bool(headers.get("transfer-encoding"))
        if is_chunked and (declared or scope["http_version"] == "1.0"):
            request_id = scope.get("eigencal.request_id")
            body = problem_body("bad_request", TWO_LENGTHS, retryable=False, request_id=request_id)
            await ProblemResponse(body, {"Connection": "close"})(scope, receive, send)
            return
        if scope["path"] == UPLOAD_PATH:
            await self._app(scope, receive, send)
            return
        is_too_large = declared.isdecimal() and int(declared) > MAX_BODY_BYTES
        num_bytes = 0

        async def counted() -> Message:
            nonlocal num_bytes
            message: Message = {} if is_too_large else await receive()
            num_bytes += len(message.get("body", b""))
            if is_too_large or num_bytes > MAX_BODY_BYTES:
                raise BodyTooLarge(f"The body is larger than {MAX_BODY_BYTES} bytes.")
            return message

        await self._app(scope, counted, send)
