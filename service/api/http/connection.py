"""One HTTP/1.1 connection: uvicorn's, with bounds on what a caller may send, and on the time it takes.

uvicorn and its parser bound neither the head of a request nor the time in which it comes: an endless header
line is put together anew with every piece that arrives, and who sends nothing is waited for without end.
Nothing here cuts an answer: a caller may wait for one, or listen to events, for as long as it reads.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, NoReturn

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from service.api.http.headers import SECURITY_HEADERS
from service.api.http.middleware import new_request_id
from service.api.http.problems import problem_body, problem_response

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a connection may take.

    `max_head_bytes` bounds method, path and header lines of a request, and whatever comes beside its body
    (chunk extensions, trailers), give or take one read of the socket. `receive_timeout_s` is the time for a
    head to come, and for each further `body_step_bytes` of a body. `stalled_s`: a caller that takes nothing
    of its answer for so long has gone. `linger_s`: a refused caller is listened to for so long, since it may
    not read its refusal when it is cut off in the middle of sending.
    """

    max_head_bytes: int = 64 << 10
    receive_timeout_s: float = 20.0
    body_step_bytes: int = 256 << 10
    max_pipelined: int = 100
    stalled_s: float = 300.0
    linger_s: float = 1.0


class _Phase(Enum):
    """Where in a request the last byte lay."""

    BETWEEN = 0
    HEAD = 1
    BODY = 2


class _TooMuchError(Exception):
    """Ends the parsing of a request that is over a bound."""


def bounded_protocol(bounds: Bounds) -> type["BoundedProtocol"]:
    """Return the class to be given to uvicorn as `http`."""
    return type("BoundedProtocol", (BoundedProtocol,), {"bounds": bounds})


class BoundedProtocol(HttpToolsProtocol):
    """A connection that is refused (408, 431) or closed when it goes over its bounds."""

    bounds: ClassVar[Bounds] = Bounds()

    # What comes in: counted as it is fed to the parser.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._phase = _Phase.BETWEEN
        self._head_bytes = 0  # of the request that comes, as far as its lines are complete
        self._idle_bytes = 0  # since the request got on, by a line of its own or by its body
        self._got_on = False
        self._stepped = 0  # body bytes since the clock was set
        self._too_much = False
        self._awaited: _Phase | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._refused = False
        self._running: RequestResponseCycle | None = None
        self._set_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the clocks, and tell the application of the hang-up."""
        self._cancel(self._clock, self._stall)
        super().connection_lost(exc)
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True  # uvicorn tells the last one of several requests alone
            self._running.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, unless the request has been refused."""
        if self._refused:
            return
        self._got_on = False
        super().data_received(data)
        if self._refused or self.transport.is_closing():
            return
        self._idle_bytes = 0 if self._got_on else self._idle_bytes + len(data)
        if self._idle_bytes > self.bounds.max_head_bytes:
            self._refuse_head()
        else:
            self._set_clock()

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._enter(_Phase.HEAD)
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a piece of the path."""
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header line, or a trailer."""
        self._count_head(len(name) + len(value) + len(": \r\n"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hand the request to the application."""
        if len(self.pipeline) >= self.bounds.max_pipelined:
            self._give_up()
        self._enter(_Phase.BODY)
        self._stepped = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._got_on = True
        self._stepped += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._enter(_Phase.BETWEEN)
        super().on_message_complete()

    def _enter(self, phase: _Phase) -> None:
        self._phase, self._got_on = phase, True

    def _count_head(self, number: int) -> None:
        self._head_bytes += number
        if self._head_bytes > self.bounds.max_head_bytes:
            self._give_up()

    def _give_up(self) -> NoReturn:
        self._too_much = True
        raise _TooMuchError  # the parser stops, and uvicorn calls `send_400_response`

    # The time in which it comes.

    def _waits_for(self) -> _Phase | None:
        """Return what the caller owes us, or None while it waits for its answer."""
        if self._phase is _Phase.BODY:
            return _Phase.BODY
        return None if self._answering() else _Phase.HEAD

    def _set_clock(self) -> None:
        awaited = self._waits_for()
        if awaited is not self._awaited:
            self._cancel(self._clock)
            self._awaited = awaited
            self._clock = None if awaited is None else self._later(self._late)

    def _later(self, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self.loop.call_later(self.bounds.receive_timeout_s, call)

    def _late(self) -> None:
        """Refuse who is late, unless a good piece of the body has come, or it is we who do not take it."""
        answered = self._answering() and self.cycle.response_started
        taken = self._stepped >= self.bounds.body_step_bytes or self.flow.read_paused or answered
        if self._awaited is _Phase.BODY and taken:
            self._stepped = 0
            self._clock = self._later(self._late)
        elif self._awaited is _Phase.HEAD and self._phase is _Phase.BETWEEN:
            self.transport.close()  # nothing was asked
        else:
            self._refuse("request_timeout", "The request did not come in time.")

    # An answer that is taken by nobody.

    def pause_writing(self) -> None:
        """Begin to wait for the caller to take what was sent."""
        super().pause_writing()
        self._stall = self.loop.call_later(self.bounds.stalled_s, self._stalled, self._unsent())

    def resume_writing(self) -> None:
        """End that wait."""
        self._cancel(self._stall)
        super().resume_writing()

    def _stalled(self, unsent: int) -> None:
        if self._unsent() >= unsent:
            self.transport.abort()
        else:
            self._stall = self.loop.call_later(self.bounds.stalled_s, self._stalled, self._unsent())

    def _unsent(self) -> int:
        return self.transport.get_write_buffer_size()

    # Refusals.

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser could not take."""
        if self._too_much:
            self._refuse_head()
        else:
            self._refuse("bad_request", "This is no valid HTTP request.")

    def _refuse_head(self) -> None:
        limit = self.bounds.max_head_bytes
        self._refuse("header_too_large", f"Path and headers are larger than {limit} bytes.")

    def _refuse(self, code: str, detail: str) -> None:
        """Say why, unless that would fall into another answer, and close. The application sees a hang-up."""
        self._refused = True
        self._cancel(self._clock)
        told = self._may_say()
        if self._answering():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if told and self.transport.can_write_eof():
            self.transport.write(_response(code, detail))
            self.transport.write_eof()
            self.flow.resume_reading()
            self.loop.call_later(self.bounds.linger_s, self.transport.close)
        else:
            self.transport.close()

    def _answering(self) -> bool:
        """Tell whether a request is with the application."""
        return self.cycle is not None and not self.cycle.response_complete

    def _may_say(self) -> bool:
        """Tell whether a response now would be the one to the request that is refused."""
        if self._phase is _Phase.BODY:
            return self._answering() and not self.cycle.response_started and not self.pipeline
        return not self._answering()

    @staticmethod
    def _cancel(*timers: asyncio.TimerHandle | None) -> None:
        for timer in timers:
            if timer is not None:
                timer.cancel()


def _response(code: str, detail: str) -> bytes:
    """Return a problem as it goes over the wire, the last of its connection."""
    request_id = new_request_id()
    response = problem_response(problem_body(code, detail, retryable=False, request_id=request_id))
    closing = (b"connection", b"close")
    headers = [*response.raw_headers, *SECURITY_HEADERS, (b"x-request-id", request_id.encode()), closing]
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    return STATUS_LINE[response.status_code] + lines + b"\r\n" + bytes(response.body)
