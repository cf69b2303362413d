"""The HTTP server: uvicorn with time limits for slow peers."""

import asyncio
import contextlib
import select
import sys
from typing import Any, ClassVar

import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 700  # and requests at once; further requests get 503
HEAD_S = 10.0  # time limit for the head of a request
BODY_S, BODY_BYTES = 30.0, 64 << 10  # time limit for this many bytes of a body, or the last ones
STOP_S = 30  # time limit for running requests when the service stops
STARTUP_FAILURE = 3  # uvicorn's exit status


class Connection(H11Protocol):
    """An HTTP connection that limits the time to send a request and the time to read its answer.

    At the limit on connections, the connection that has waited longest for its peer is closed.
    """

    write_timeout_s: ClassVar[float]
    waiting: ClassVar[dict["Connection", None]]  # that wait for their peers, the longest wait first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._num_bytes = 0  # of a body, since its wait began
        self._begin_wait("read", HEAD_S)
        longest = next(iter(self.waiting))
        is_full = self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency
        if is_full and longest is not self:
            # `connection_lost` comes later, and the connection must not count until then.
            longest.connections.discard(longest)
            longest.waiting.pop(longest)
            longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all waits."""
        super().connection_lost(exc)
        self._end_wait("read")
        self._end_wait("write")

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a request."""
        before = self.conn.their_state
        super().data_received(data)
        self._num_bytes += len(data)
        self._update_wait(before)

    def pause_writing(self) -> None:
        """Wait until the peer has read bytes."""
        super().pause_writing()
        self._begin_wait("write", self.write_timeout_s)

    def resume_writing(self) -> None:
        """End the wait."""
        super().resume_writing()
        self._end_wait("write")

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._update_wait(None)

    def timeout_keep_alive_handler(self) -> None:
        """Close once the peer has read the last bytes, unless the next request has arrived."""
        if not self.transport.is_closing() and not self._has_unread():
            super().timeout_keep_alive_handler()
            self._update_wait(None)

    def _update_wait(self, before: object) -> None:
        """Start or end waits by the state of the peer. before: its former state; None after an answer."""
        state = self.conn.their_state
        if self.transport.is_closing():
            if "write" not in self._timers:
                self._begin_wait("write", self.write_timeout_s)
        elif state is h11.SEND_BODY:
            if before is not state or self._num_bytes >= BODY_BYTES:
                self._num_bytes = 0
                self._begin_wait("read", BODY_S)
        elif state is not h11.IDLE:
            self._end_wait("read")
        elif before is None:
            self._end_wait("read")
            self.waiting[self] = None  # uvicorn's keep-alive timer ends this wait
        elif before is not state or "read" not in self._timers:
            self._begin_wait("read", HEAD_S)

    def _begin_wait(self, kind: str, seconds: float) -> None:
        self._end_wait(kind)
        self.waiting[self] = None
        self._timers[kind] = self.loop.call_later(seconds, self._time_out, kind, seconds)

    def _end_wait(self, kind: str) -> None:
        if (timer := self._timers.pop(kind, None)) is not None:
            timer.cancel()
        if not self._timers:
            self.waiting.pop(self, None)

    def _has_unread(self) -> bool:
        """Return True if bytes wait in the socket: in a process that was frozen, timers run before reads."""
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket"), select.POLLIN)
        return bool(poll.poll(0))

    def _time_out(self, kind: str, seconds: float) -> None:
        # The application, or a process that was frozen, has not read the data yet.
        if kind == "read" and (self.flow.read_paused or self._has_unread()):
            self._begin_wait(kind, seconds)
        else:
            self.transport.abort()


class StartupErrors:
    """Middleware that reports errors for the operator in one line if the application cannot start."""

    def __init__(self, app: ASGIApp, errors: tuple[type[Exception], ...]) -> None:
        self._app = app
        self._errors = errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or the start and stop of the application."""

        async def send_plainly(message: Message) -> None:
            error = sys.exc_info()[1]  # Starlette sends its traceback while it handles the error
            if message["type"] == "lifespan.startup.failed" and isinstance(error, self._errors):
                message = {**message, "message": f"Cannot start: {' '.join(str(error).split())}"}
            await send(message)

        await self._app(scope, receive, send_plainly if scope["type"] == "lifespan" else send)


def http_options(write_timeout_s: float = 30.0) -> dict[str, Any]:
    """Return uvicorn's options for a listener; each listener has connections of its own."""

    class Bounded(Connection):
        waiting: ClassVar[dict[Connection, None]] = {}

    Bounded.write_timeout_s = write_timeout_s
    return {
        "http": Bounded,
        "h11_max_incomplete_event_size": 64 << 10,
        "ws": "none",
        "server_header": False,
        "limit_concurrency": MAX_CONNECTIONS,
    }


def run(app: ASGIApp, *, host: str, port: int, log_level: str, write_timeout_s: float) -> None:
    """Serve until a signal arrives."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level=log_level,
        access_log=log_level == "debug",
        timeout_graceful_shutdown=STOP_S,
        **http_options(write_timeout_s),
    )
    server = uvicorn.Server(config)
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(STARTUP_FAILURE)
