"""The way out of a connection: refusals of our own, answers that nobody takes, callers that hang up.

Nothing here cuts an answer: a caller may wait for one, or listen to events, for as long as it reads.
"""

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, cast

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from service.api.http.error_log import ErrorLog
from service.api.http.headers import SECURITY_HEADERS
from service.api.http.middleware import new_request_id
from service.api.http.problems import DEFAULT_RETRY_AFTER_S, problem_body, problem_response
from service.server.places import Places

TOO_MANY = "Too many connections: this one waited longest for its caller."


class Phase(Enum):
    """Where in a request the last byte lay."""

    BETWEEN = 0
    HEAD = 1
    BODY = 2


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a connection may take.

    `max_head_bytes` bounds method, path and header lines of a request, and whatever comes beside its body
    (chunk extensions, trailers), give or take one read of the socket. `receive_timeout_s` is the time for a
    head to come, and for each further `body_step_bytes` of a body. `stalled_s`: a caller that takes nothing
    of its answer for so long has gone; `flush_s` is that time once we have closed, `watch_s` how often we
    look. `linger_s`: a refused caller is listened to for so long, since it may not read its refusal when it
    is cut off in the middle of sending. `max_connections` bounds how many there are at once.
    """

    max_head_bytes: int = 64 << 10
    receive_timeout_s: float = 20.0
    body_step_bytes: int = 256 << 10
    max_pipelined: int = 100
    stalled_s: float = 300.0
    flush_s: float = 10.0
    watch_s: float = 1.0
    linger_s: float = 1.0
    max_connections: int = 700


class AnsweringProtocol(HttpToolsProtocol):
    """uvicorn's connection, let go when its caller takes nothing of an answer."""

    bounds: ClassVar[Bounds]
    errors: ClassVar[ErrorLog]
    places: ClassVar[Places]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin without a request."""
        # asyncio promises the base class; of a TCP connection it is this one.
        super().connection_made(cast("asyncio.Transport", transport))
        self._phase = Phase.BETWEEN
        self._refused = False
        self._unsent_before = 0
        self._still_s = 0.0  # for so long nothing of what is unsent was taken
        self._watching = self.loop.call_later(self.bounds.watch_s, self._watch)
        self._running: RequestResponseCycle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the application of the hang-up."""
        cancel(self._watching)
        self.places.forget(self)
        super().connection_lost(exc)
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True  # uvicorn tells the last one of several requests alone
            self._running.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def resume_writing(self) -> None:
        """Take note that the caller took something, whatever has been sent since."""
        self._unsent_before, self._still_s = 0, 0.0
        super().resume_writing()

    def _watch(self) -> None:
        """Let go who takes nothing. Not left to `pause_writing`: under 64 kB unsent, that is never called."""
        unsent = self._unsent()
        still = 0 < self._unsent_before <= unsent
        self._still_s = self._still_s + self.bounds.watch_s if still else 0.0
        self._unsent_before = unsent
        if self._still_s >= (self.bounds.flush_s if self.transport.is_closing() else self.bounds.stalled_s):
            self.drop()
        else:
            self._note_owing()
            self._watching = self.loop.call_later(self.bounds.watch_s, self._watch)

    def drop(self) -> None:
        """Go at once, and from every count: `close` would wait for the caller to take the rest."""
        self.places.forget(self)
        self.connections.discard(self)
        self.transport.abort()

    def _unsent(self) -> int:
        return self.transport.get_write_buffer_size()

    def _waits_for(self) -> Phase | None:
        """Return what the caller owes us, or None while it waits for its answer."""
        if self._phase is Phase.BODY:
            return Phase.BODY
        return None if self._answering() else Phase.HEAD

    def _note_owing(self) -> None:
        if not self._refused:
            self.places.note(self, owes=self._waits_for() is not None or self._still_s > 0)

    def _answering(self) -> bool:
        """Tell whether a request is with the application."""
        return self.cycle is not None and not self.cycle.response_complete

    def _answer_begun(self) -> bool:
        """Tell whether an answer is on its way, or that to an earlier request is made."""
        running = self._running
        if running is None or running.response_complete:
            return False
        return running.response_started or running is not self.cycle

    def may_give_way(self) -> bool:
        """Tell whether the caller owes us something, and takes what it was sent no longer."""
        if self._unsent():
            return self._still_s > 0
        ours = self.flow.read_paused or self._answer_begun() or self.transport.is_closing()
        return self._waits_for() is not None and not ours

    def give_way(self) -> None:
        """Say why, unless nothing was asked since the last answer or the caller does not read, and go."""
        if self._unsent() or (self._phase is Phase.BETWEEN and self.cycle is not None):
            self._tell(problem("overloaded", TOO_MANY))
            self.drop()
        else:
            self._refuse("overloaded", TOO_MANY)

    def _refuse(self, code: str, detail: str) -> None:
        """Say why, unless that would fall into another answer, and close."""
        self._refused = True
        self.places.leave(self)
        self._refuse_with(problem(code, detail), told=self._may_say())

    def _may_say(self) -> bool:
        """Tell whether a response now would be the one to the request that is refused."""
        if self._phase is Phase.BODY:
            return self._answering() and not self.cycle.response_started and not self.pipeline
        return not self._answering()

    def _refuse_with(self, body: dict[str, Any], *, told: bool) -> None:
        """Answer with a problem if it can be `told`, and close. The application sees a hang-up."""
        self._tell(body)
        if self._answering():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        # Half closed, not closed: a reset, sent for what still comes in, may make the caller drop the answer.
        if told and self.transport.can_write_eof():
            self.transport.write(_response(body))
            self.transport.write_eof()
            self.flow.resume_reading()  # else a caller that is still sending would wait, and never read it
            self.loop.call_later(self.bounds.linger_s, self.transport.close)
        else:
            self.transport.close()

    def _tell(self, body: dict[str, Any]) -> None:
        """Tell the log of errors: the application, which sees nothing of this, cannot."""
        self.errors.note(body, f"a connection from {self.client[0] if self.client else 'this machine'}")


def problem(code: str, detail: str) -> dict[str, Any]:
    """Return the body of a problem that the application has no part in."""
    return problem_body(code, detail, retryable=code == "overloaded", request_id=new_request_id())


def _response(body: dict[str, Any]) -> bytes:
    """Return a problem as it goes over the wire, the last of its connection."""
    later = {"Retry-After": str(round(DEFAULT_RETRY_AFTER_S))} if body["retryable"] else None
    response = problem_response(body, later)
    own = [(b"x-request-id", body["request_id"].encode()), (b"connection", b"close")]
    # The middleware, which adds these to all else, never sees this answer.
    headers = [*response.raw_headers, *SECURITY_HEADERS, *own]
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    return STATUS_LINE[response.status_code] + lines + b"\r\n" + bytes(response.body)


def cancel(timer: asyncio.TimerHandle | None) -> None:
    """Cancel a timer, if there is one."""
    if timer is not None:
        timer.cancel()
