"""The middleware that every request and every response passes."""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, ExitStack, aclosing
from contextvars import ContextVar
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import AmbiguousLength, BodyTooLarge, Overloaded, UnsupportedMediaType
from service.http.bodies import refuse_heavy
from service.http.keys import Keys
from service.http.pages import CLOSED, HTML, PAGE
from service.http.problems import error_response, has_route, startup_errors, where_of
from service.sharing import OWNER, Places
from service.store.keys import Scope as KeyScope

log = logging.getLogger(__name__)

Kind = Literal["score", "chat", "gateway", "batch"]
# Requests that hold a place.
KINDS: Mapping[str, Kind] = {
    "/score": "score",
    "/score/batch": "batch",
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/responses/compact": "chat",
    "/verify": "gateway",
}
# First parts of the paths that need no key, and of those that need a score key. Others need an admin key.
OPEN = frozenset({"", "health", "healthz", "readyz", "openapi.json", "docs", "console"})
SCORE = frozenset({"score", "scores", "verify", "v1", "metrics"})
UPLOAD_PATH = "/calibrate"  # it has larger limits, see `admin.uploads`
FORWARDED = "v1"  # bodies under this part of the path are forwarded as they are
MAX_BODY_BYTES = 8 << 20
TOO_LARGE = f"The body is larger than {MAX_BODY_BYTES} bytes."
STOPPING = "The service is stopping, and the answer was not ready in time."
TWO_LENGTHS = "A request may have Content-Length or, in HTTP/1.1, Transfer-Encoding, but not both."
CLIENT_CLOSED_REQUEST = 499  # of a request that ends before its response starts; nobody receives it
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
# A caller's id is written to logs and headers, so it must be printable, short and without spaces.
SANE_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}\Z")

# The caller's `traceparent` (W3C Trace Context), inherited by all tasks of its request.
TRACEPARENT: ContextVar[str] = ContextVar("traceparent", default="")


class Door:
    """The middleware around all routes.

    It gives a request an id (the caller's, if it is well-formed) and records its arrival. The key is checked
    before the body is read, and the body is read up to a limit. A request in `KINDS` holds a place until its
    response ends: there are `max_requests` places, and `max_batches` for batches. Places are divided fairly
    among keys. Requests of the scope `score` are cancelled when their callers disconnect. Admin requests run
    to their end, because they may have changed the store.

    `scope["eigencal.request_id"]`, `scope["eigencal.arrived"]` (by time.perf_counter) and `state.caller` (see
    `Keys.admit`) are for the routes. The keys are in the application's `state.keys`.
    """

    def __init__(
        self, app: ASGIApp, max_requests: int, max_batches: int, registry: CollectorRegistry | None = None
    ) -> None:
        self._app = app
        self._cancelling_app = CancelOnDisconnect(app)
        requests = Places(max_requests)
        self._places = dict.fromkeys(get_args(Kind), requests) | {"batch": Places(max_batches)}
        registry = registry or CollectorRegistry()
        self._in_flight = Gauge(
            "eigencal_requests_in_flight", "Requests in flight.", ["kind"], registry=registry
        )
        full = "Requests refused because too many were in flight."
        self._refused = Counter("eigencal_requests_refused", full, ["kind"], registry=registry)
        by_status = "Responses started, by kind and HTTP status."
        self._responses = Counter("eigencal_responses", by_status, ["kind", "status"], registry=registry)
        first = "Time from the request to the response's headers. For streams: to the start of the stream."
        self._first_byte = Histogram(
            "eigencal_first_byte_seconds", first, ["kind"], buckets=SECONDS, registry=registry
        )
        for kind in get_args(Kind):
            self._in_flight.labels(kind)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, startup_errors(send))
            return
        request = Request(scope, receive)
        request_id = request.headers.get("x-request-id", "")
        if not SANE_ID.match(request_id):
            request_id = f"req_{secrets.token_hex(8)}"
        scope["eigencal.request_id"] = request_id
        scope["eigencal.arrived"] = arrived = time.perf_counter()
        path = _path(scope)
        kind = KINDS.get(path) if scope["method"] == "POST" else None
        has_started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                if kind is not None:
                    self._responses.labels(kind, str(message["status"])).inc()
                    self._first_byte.labels(kind).observe(time.perf_counter() - arrived)
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                is_page = headers.get("content-type", "").startswith(HTML)
                headers.setdefault("content-security-policy", PAGE if is_page else CLOSED)
            await send(message)

        trace = TRACEPARENT.set(request.headers.get("traceparent", ""))
        try:
            await self._serve(request, path, kind, send_with_headers)
        except ClientDisconnect:
            log.debug("request %s: the caller disconnected while sending", request_id)
        except asyncio.CancelledError:  # the service stops, and its time to wait is over
            if not has_started:
                response = await error_response(request, Overloaded(STOPPING))
                await response(scope, receive, send_with_headers)
            raise
        except Exception as error:
            # The head of the response is sent and cannot be changed, so the response is cut off.
            if has_started:
                log.exception("unexpected error in request %s, %s", request_id, where_of(scope))
                raise
            response = await error_response(request, error)
            await response(scope, receive, send_with_headers)
        finally:
            TRACEPARENT.reset(trace)

    async def _serve(self, request: Request, path: str, kind: Kind | None, send: Send) -> None:
        """Check a request and pass it to its route. Raises the errors of the check and of the route."""
        scope, receive, headers = request.scope, request.receive, request.headers
        first = path.removeprefix("/").partition("/")[0]  # such as "score" for /score/batch
        is_known = has_route(scope)
        if is_known:
            scope["eigencal.path"] = path if path in KINDS else f"/{first}"
        if "transfer-encoding" in headers and ("content-length" in headers or scope["http_version"] == "1.0"):
            raise AmbiguousLength(TWO_LENGTHS)
        if not is_known:  # 404 or 405, with or without a key
            await self._app(scope, receive, send)
            return
        needed: KeyScope | None = None if first in OPEN else "score" if first in SCORE else "admin"
        keys: Keys = scope["app"].state.keys
        if needed is not None:
            request.state.caller = await keys.admit(request, needed)
        OWNER.set(request.state.caller if needed == "score" else "")
        if kind is not None:
            self._refuse_if_full(kind)
        if path != UPLOAD_PATH:
            receive = await _with_body(request, is_forwarded=first == FORWARDED)
        app = self._cancelling_app if needed == "score" else self._app
        with ExitStack() as held:
            if kind is not None:
                self._refuse_if_full(kind)  # others may have taken the places while the body arrived
                held.enter_context(self._in_flight.labels(kind).track_inprogress())
                held.enter_context(self._places[kind].held())
            await app(scope, receive, send)

    def _refuse_if_full(self, kind: Kind) -> None:
        if not self._places[kind].has_room():
            self._refused.labels(kind).inc()
            raise Overloaded("Too many requests are in flight.")


async def _with_body(request: Request, *, is_forwarded: bool) -> Receive:
    """Read the body and return a `receive` that replays it.

    Raises BodyTooLarge, by Content-Length or while the body arrives; UnsupportedMediaType; InvalidRequest;
    and Starlette's ClientDisconnect.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MAX_BODY_BYTES:
        raise BodyTooLarge(TOO_LARGE)
    pieces, num_bytes = list[bytes](), 0
    async for piece in request.stream():
        pieces.append(piece)
        num_bytes += len(piece)
        if num_bytes > MAX_BODY_BYTES:
            raise BodyTooLarge(TOO_LARGE)
    body = b"".join(pieces)
    # A page of another origin can make a browser post a body without a type or of plain text, but not JSON.
    media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if body and media_type != "application/json" and not media_type.endswith("+json"):
        raise UnsupportedMediaType("Send JSON with Content-Type: application/json.")
    if not is_forwarded:
        refuse_heavy(body)
    messages = iter([{"type": "http.request", "body": body}])

    async def receive() -> Message:
        return next(messages, None) or await request.receive()

    return receive


def _path(scope: Scope) -> str:
    """Return the path as routes are matched: below the root path, and without a line feed at the end."""
    path: str = scope["path"]
    below = path.removeprefix(scope.get("root_path", ""))
    return (below if below[:1] in ("", "/") else path).removesuffix("\n")


class CancelOnDisconnect:
    """Reads the body of a request, and cancels the request when its caller disconnects.

    Without this a handler would continue after its caller has gone, and keep the LLM busy for nobody.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        messages = [await receive()]
        while messages[-1].get("more_body"):
            messages.append(await receive())
        last: Message = {}  # sent so far

        async def receive_body() -> Message:
            if not messages:
                await asyncio.Event().wait()  # only `disconnected` learns of the disconnect
            return messages.pop(0)

        async def send_response(message: Message) -> None:
            nonlocal last
            last = message
            await send(message)

        async def disconnected() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        # Since version 2.4 of ASGI, Starlette's responses do not listen for the disconnect themselves.
        scope["asgi"] = {**scope.get("asgi", {}), "spec_version": "2.4"}
        work = asyncio.ensure_future(self._app(scope, receive_body, send_response))
        gone = asyncio.ensure_future(disconnected())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            is_answered = last.get("type") == "http.response.body" and not last.get("more_body")
            if work.done() or is_answered:  # servers report a disconnect after the response, too
                await work
        finally:
            gone.cancel()
            is_cancelled = not work.done()
            if is_cancelled:
                work.cancel()
                # Wait until it has released the LLM. Its outcome is ignored, since the caller has gone.
                await asyncio.gather(work, return_exceptions=True)
        if is_cancelled and not last:
            await Response(status_code=CLIENT_CLOSED_REQUEST)(scope, receive, send)


class StreamingBody(StreamingResponse):
    """Sends pieces as they arrive. Closes them and `ending` at the end, or when the request is cancelled."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        pieces: AsyncGenerator[bytes, None],
        ending: AsyncExitStack | None = None,
    ) -> None:
        super().__init__(pieces, status, headers)
        self._pieces = pieces
        self._ending = ending or AsyncExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        async with self._ending, aclosing(self._pieces):
            await super().__call__(scope, receive, send)
