"""The HTTP server: uvicorn with time limits for slow peers."""

import asyncio
import contextlib
import select
import sys
from typing import Any, ClassVar

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 700  # and requests at once; further requests get 503
HEAD_S = 10.0  # time limit for the head of a request
BODY_S, BODY_BYTES = 30.0, 64 << 10  # time limit for this many bytes of a body, or the last ones
STOP_S = 30  # time limit for running requests when the service stops
STARTUP_FAILURE = 3  # uvicorn's exit status


class Connection(H11Protocol):
    """An HTTP connection that limits the time that it waits for its peer to send a request or read an answer.

    At the limit on connections, the connection that has waited longest for its peer is closed.
    """

    write_timeout_s: ClassVar[float]
    waiting: ClassVar[dict["Connection", None]]  # that wait for their peers, the longest wait first
    _timer: asyncio.TimerHandle | None = None
    _awaited = ""  # from the peer: "head", "body", "reads" (of an answer), or "" for nothing
    _num_bytes = 0  # of a body, since the wait began
    _is_write_paused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._update_wait()
        longest = next(iter(self.waiting))
        is_full = self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency
        if is_full and longest is not self:
            # `connection_lost` comes later, and the connection must not count until then.
            longest.connections.discard(longest)
            longest.waiting.pop(longest)
            longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the wait."""
        super().connection_lost(exc)
        self._wait_for("")

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a request."""
        super().data_received(data)
        self._num_bytes += len(data)
        self._update_wait()

    def pause_writing(self) -> None:
        """Wait until the peer has read bytes."""
        super().pause_writing()
        self._is_write_paused = True
        self._update_wait()

    def resume_writing(self) -> None:
        """End the wait."""
        super().resume_writing()
        self._is_write_paused = False
        self._update_wait()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._update_wait()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, unless the next request has arrived."""
        if not self.transport.is_closing() and not self._has_unread():
            super().timeout_keep_alive_handler()
            self._update_wait()

    def _update_wait(self) -> None:
        state = self.conn.their_state
        if self._is_write_paused or self.transport.is_closing():
            awaited = "reads"
        else:
            awaited = "body" if state is h11.SEND_BODY else "head" if state is h11.IDLE else ""
        if awaited != self._awaited or (awaited == "body" and self._num_bytes >= BODY_BYTES):
            self._wait_for(awaited)

    def _wait_for(self, awaited: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.waiting.pop(self, None)
        self._awaited, self._num_bytes, self._timer = awaited, 0, None
        if awaited:
            self.waiting[self] = None
            limit_s = {"head": HEAD_S, "body": BODY_S, "reads": self.write_timeout_s}[awaited]
            self._timer = self.loop.call_later(limit_s, self._time_out)

    def _has_unread(self) -> bool:
        """Return True if bytes wait in the socket: in a process that was frozen, timers run before reads."""
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket"), select.POLLIN)
        return bool(poll.poll(0))

    def _time_out(self) -> None:
        # The application, or a process that was frozen, has not read the data yet.
        if self._awaited != "reads" and (self.flow.read_paused or self._has_unread()):
            self._wait_for(self._awaited)
        else:
            self.transport.abort()


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
