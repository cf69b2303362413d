"""The way out of a connection: refusals of our own, answers that nobody takes, callers that hang up.

Nothing here cuts an answer: a caller may wait for one, or listen to events, for as long as it reads.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from service.api.http.error_log import ErrorLog
from service.api.http.headers import SECURITY_HEADERS
from service.api.http.middleware import new_request_id
from service.api.http.problems import problem_body, problem_response


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a connection may take.

    `max_head_bytes` bounds method, path and header lines of a request, and whatever comes beside its body
    (chunk extensions, trailers), give or take one read of the socket. `receive_timeout_s` is the time for a
    head to come, and for each further `body_step_bytes` of a body. `stalled_s`: a caller that takes nothing
    of its answer for so long has gone. `linger_s`: a refused caller is listened to for so long, since it may
    not read its refusal when it is cut off in the middle of sending. `max_connections` bounds how many there
    are at once.
    """

    max_head_bytes: int = 64 << 10
    receive_timeout_s: float = 20.0
    body_step_bytes: int = 256 << 10
    max_pipelined: int = 100
    stalled_s: float = 300.0
    linger_s: float = 1.0
    max_connections: int = 700


class AnsweringProtocol(HttpToolsProtocol):
    """uvicorn's connection, let go when its caller takes nothing of an answer."""

    bounds: ClassVar[Bounds]
    errors: ClassVar[ErrorLog]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Begin without a request."""
        super().connection_made(transport)
        self._stall: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the application of the hang-up."""
        cancel(self._stall)
        super().connection_lost(exc)
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True  # uvicorn tells the last one of several requests alone
            self._running.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        """Begin to wait for the caller to take what was sent."""
        super().pause_writing()
        self._stall = self.loop.call_later(self.bounds.stalled_s, self._stalled, self._unsent())

    def resume_writing(self) -> None:
        """End that wait."""
        cancel(self._stall)
        super().resume_writing()

    def _stalled(self, unsent: int) -> None:
        if self._unsent() >= unsent:
            self.transport.abort()  # close would wait for the caller to take the rest
        else:
            self._stall = self.loop.call_later(self.bounds.stalled_s, self._stalled, self._unsent())

    def _unsent(self) -> int:
        return self.transport.get_write_buffer_size()

    def _answering(self) -> bool:
        """Tell whether a request is with the application."""
        return self.cycle is not None and not self.cycle.response_complete

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
    response = problem_response(body)
    own = [(b"x-request-id", body["request_id"].encode()), (b"connection", b"close")]
    # The middleware, which adds these to all else, never sees this answer.
    headers = [*response.raw_headers, *SECURITY_HEADERS, *own]
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    return STATUS_LINE[response.status_code] + lines + b"\r\n" + bytes(response.body)


def cancel(timer: asyncio.TimerHandle | None) -> None:
    """Cancel a timer, if there is one."""
    if timer is not None:
        timer.cancel()
