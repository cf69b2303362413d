"""ASGI middleware for every request: its id, limits on bodies and answers, unexpected errors."""

import asyncio
import logging
import re
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import MappingProxyType

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.errors import ProblemResponse, error_response, internal_body, problem_body, route_of
from service.errors import BodyTooLarge, Overloaded
from service.sharing import Places
from service.tracing import NO_SPAN, NO_SPANS, TRACEPARENT, Spans

log = logging.getLogger(__name__)

# A caller's id is written to logs and headers, so it must be printable, short and without spaces.
SANE_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}\Z")
STOPPING = "The service is stopping, and the answer was not ready in time."
MAX_BODY_BYTES = 8 << 20
MAX_UNSENT_BYTES = 128 << 20  # of all answers over PIECE_BYTES that callers have not read yet
MAX_RECEIVED_BYTES = 256 << 20  # of all request bodies over PIECE_BYTES
PIECE_BYTES = 64 << 10
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
    service ends the request. `kinds`: the paths that are counted and traced, with their kinds. `responded`:
    is called with the kind, the status and the seconds until the start of each response on these paths.
    """

    def __init__(
        self,
        app: ASGIApp,
        kinds: Mapping[str, str] = MappingProxyType({}),
        responded: Callable[[str, int, float], object] = lambda *_: None,
        spans: Spans = NO_SPANS,
    ) -> None:
        self._app = app
        self._kinds = kinds
        self._responded = responded
        self._spans = spans

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
                    span.tell(message["status"])
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                is_page = headers.get("content-type", "").startswith("text/html")
                headers.setdefault("content-security-policy", PAGE if is_page else CLOSED)
            await send(message)

        begun = NO_SPAN if kind is None else self._spans.request(scope["method"], path, traceparent)
        try:
            with begun as span:
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

    The large bodies of all requests together are bounded, too. A body with two lengths is refused: a proxy
    and the service could disagree on where it ends.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._bytes = Places(MAX_RECEIVED_BYTES)

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
            size = len(message.get("body", b""))
            num_bytes += size
            if is_too_large or num_bytes > MAX_BODY_BYTES:
                raise BodyTooLarge(f"The body is larger than {MAX_BODY_BYTES} bytes.")
            if size and num_bytes > PIECE_BYTES:
                if not self._bytes.has_room():
                    raise Overloaded("Too many large bodies are being received.")
                received.enter_context(self._bytes.held(size))
            return message

        with ExitStack() as received:
            await self._app(scope, counted, send)


class AnswerLimit:
    """Limits the bytes of large answers that callers have not read yet; keys share the limit.

    A body is sent in pieces: the server buffers one piece and limits the wait until the caller has read it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._bytes = Places(MAX_UNSENT_BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_refused = False

        async def send_bounded(message: Message) -> None:
            nonlocal is_refused
            body = message.get("body", b"")
            if message["type"] == "http.response.start" and scope["method"] != "HEAD":
                num_bytes = int(dict(message.get("headers", ())).get(b"content-length", 0))
                is_refused = num_bytes > PIECE_BYTES and not self._bytes.has_room()
                if is_refused:
                    error = Overloaded("Too many large responses wait for their callers to read them.")
                    await error_response(error, scope.get("eigencal.request_id"))(scope, receive, send)
                elif num_bytes > PIECE_BYTES:
                    unsent.enter_context(self._bytes.held(num_bytes))
            if is_refused:
                return
            for begin in range(0, len(body) - PIECE_BYTES, PIECE_BYTES):
                piece = body[begin : begin + PIECE_BYTES]
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            if len(body) > PIECE_BYTES:
                message = {**message, "body": body[-(len(body) % PIECE_BYTES or PIECE_BYTES) :]}
            await send(message)

        with ExitStack() as unsent:
            await self._app(scope, receive, send_bounded)
