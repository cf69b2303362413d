"""Around every request: its id, the bound on its body, and the last resort for errors.

Pure ASGI: it is on the path of every score, and Starlette's base class would run each handler in a task.
"""

import logging
import re
import secrets
import sys
import time

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import error_response, internal_problem
from service.domain.errors import BodyTooLarge

log = logging.getLogger(__name__)

# A caller's id goes into logs and headers: printable, short, no spaces.
SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}\Z")
UPLOAD_PATHS = ("/calibrate", "/evaluate")


class RequestContext:
    """Gives each request its id, the caller's if sane, and answers 500 when nothing else answers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        request_id = sent.decode() if SANE_ID.match(sent) else f"req_{secrets.token_hex(8)}"
        scope["eigencal.request_id"] = request_id
        scope["eigencal.arrived"] = time.perf_counter()
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            log.info("request %s: the caller hung up while sending", request_id)
        except Exception as error:
            if started:
                log.exception("unforeseen error in request %s %r", request_id, scope["path"])
                raise
            await internal_problem(request_id, error)(scope, receive, send_with_id)


class PlainStart:
    """Tells why the application cannot start in one line, where the error is one meant for the operator."""

    def __init__(self, app: ASGIApp, errors: tuple[type[Exception], ...]) -> None:
        self._app = app
        self._errors = errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, or the life of the application."""

        async def plainly(message: Message) -> None:
            error = sys.exc_info()[1]  # Starlette sends its traceback while it handles the error
            if message["type"] == "lifespan.startup.failed" and isinstance(error, self._errors):
                message = {**message, "message": f"Cannot start: {' '.join(str(error).split())}"}
            await send(message)

        await self._app(scope, receive, plainly if scope["type"] == "lifespan" else send)


class BodyLimit:
    """Refuses bodies over a size, by their Content-Length or while they come; uploads have their own."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http" or scope["path"] in UPLOAD_PATHS:
            await self._app(scope, receive, send)
            return
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_bytes:
                raise self._too_large()
            return message

        if declared.isdigit() and int(declared) > self._max_bytes:
            response = error_response(self._too_large(), scope.get("eigencal.request_id"))
            await response(scope, receive, send)
            return
        await self._app(scope, counted, send)

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"The body is larger than {self._max_bytes} bytes.")
