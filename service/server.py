"""uvicorn as the service runs it: waits for a peer are bounded, and probes may have a port of their own."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from socket import socket
from typing import Any, ClassVar

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.api.health import OnlyProbes

MAX_CONNECTIONS = 700  # and requests at once; past it: 503
MAX_PROBES = 100
HEAD_S = 10.0  # for the head of a request to come
BODY_S, BODY_BYTES = 30.0, 64 << 10  # for this much of a body, or its end, to come
STOP_S = 30  # for the requests under way when the service stops
STARTUP_FAILURE = 3  # as uvicorn exits


class Connection(H11Protocol):
    """An HTTP connection that is cut when its peer does not send its request, or does not take the answer.

    Where connections run out, the connection that has waited longest for its peer gives way.
    """

    write_timeout_s: ClassVar[float]
    waiting: ClassVar[dict["Connection", None]]  # for their peers, the longest wait first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._num_bytes = 0  # of a body, since its wait began
        self._wait("read", HEAD_S)
        longest = next(iter(self.waiting))
        is_full = self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency
        if is_full and longest is not self:
            # Its end comes later, and must not count until then.
            longest.connections.discard(longest)
            longest.waiting.pop(longest)
            longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all waits."""
        super().connection_lost(exc)
        self._go_on("read")
        self._go_on("write")

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a request of which a part came."""
        before = self.conn.their_state
        super().data_received(data)
        self._num_bytes += len(data)
        self._look(before)

    def pause_writing(self) -> None:
        """Wait until the peer has taken bytes."""
        super().pause_writing()
        self._wait("write", self.write_timeout_s)

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        self._go_on("write")

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._look(None)

    def timeout_keep_alive_handler(self) -> None:
        """Close, once the peer has taken the last bytes."""
        super().timeout_keep_alive_handler()
        self._look(None)

    def _look(self, before: object) -> None:
        """Wait for what the state of the connection asks for. before: None after an answer."""
        state = self.conn.their_state
        if self.transport.is_closing():
            if "write" not in self._timers:
                self._wait("write", self.write_timeout_s)
        elif state is h11.SEND_BODY:
            if before is not state or self._num_bytes >= BODY_BYTES:
                self._num_bytes = 0
                self._wait("read", BODY_S)
        elif state is not h11.IDLE:
            self._go_on("read")
        elif before is None:
            self._go_on("read")
            self.waiting[self] = None  # uvicorn's own timer ends this wait
        elif before is not state or "read" not in self._timers:
            self._wait("read", HEAD_S)

    def _wait(self, kind: str, seconds: float) -> None:
        self._go_on(kind)
        self.waiting[self] = None
        self._timers[kind] = self.loop.call_later(seconds, self._cut, kind, seconds)

    def _go_on(self, kind: str) -> None:
        if (timer := self._timers.pop(kind, None)) is not None:
            timer.cancel()
        if not self._timers:
            self.waiting.pop(self, None)

    def _cut(self, kind: str, seconds: float) -> None:
        if kind == "read" and self.flow.read_paused:  # the application has yet to take what came
            self._wait(kind, seconds)
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


class Probes(uvicorn.Server):
    """A listener within a process that another server ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the other server."""
        yield


class Server(uvicorn.Server):
    """uvicorn's server, and `probes` for as long as it runs."""

    def __init__(self, config: uvicorn.Config, probes: uvicorn.Config | None = None) -> None:
        super().__init__(config)
        self.probes = None if probes is None else Probes(probes)
        self._probing: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Listen, once the application has started."""
        await super().startup(sockets)
        if self.probes is not None:
            self._probing = asyncio.create_task(self.probes.serve(), name="probes")

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Stop; probes are answered to the last."""
        await super().shutdown(sockets)
        if self.probes is not None and self._probing is not None:
            self.probes.should_exit = True
            await self._probing


def run(
    app: ASGIApp, *, host: str, port: int, health_port: int | None, log_level: str, write_timeout_s: float
) -> None:
    """Serve until a signal ends it. health_port: where probes are answered, too; None: nowhere else."""
    options = http_options(write_timeout_s)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level=log_level,
        access_log=log_level == "debug",
        timeout_graceful_shutdown=STOP_S,
        **options,
    )
    probes = None
    if health_port is not None:
        options = http_options(write_timeout_s) | {"limit_concurrency": MAX_PROBES}
        probes = uvicorn.Config(
            OnlyProbes(app),
            host=host,
            port=health_port,
            log_level=log_level,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            **options,
        )
    server = Server(config, probes)
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(STARTUP_FAILURE)
