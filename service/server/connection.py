"""One HTTP/1.1 connection: uvicorn's, with bounds on what a caller may send, and on the time it takes.

uvicorn bounds neither the head of a request nor the time in which it comes: an endless header line is put
together anew with every piece that arrives, and a caller that sends nothing is waited for without end.
"""

import asyncio
from typing import NoReturn

from service.api.http.error_log import ErrorLog
from service.server.answers import AnsweringProtocol, Bounds, Phase, cancel
from service.server.places import Places


class _TooMuchError(Exception):
    """Ends the parsing of a request that is over a bound."""


def bounded_protocol(bounds: Bounds, errors: ErrorLog) -> type["BoundedProtocol"]:
    """Return the class to be given to uvicorn as `http`. Its connections count towards one bound."""
    own = {"bounds": bounds, "errors": errors, "places": Places(bounds.max_connections)}
    return type("BoundedProtocol", (BoundedProtocol,), own)


class BoundedProtocol(AnsweringProtocol):
    """A connection that is refused (408, 431, 503) or closed when it goes over its bounds."""

    # What comes in: counted as it is fed to the parser.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request. Where there are too many connections, one gives way."""
        super().connection_made(transport)
        self._head_bytes = 0  # of the request that comes, as far as its lines are complete
        self._idle_bytes = 0  # since the request got on, by a line of its own or by its body
        self._got_on = False
        self._stepped = 0  # body bytes since the clock was set
        self._too_much = False
        self._awaited: Phase | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._set_clock()
        self.places.admit(self, len(self.connections))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the clock."""
        cancel(self._clock)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._note_owing()

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
        self._enter(Phase.HEAD)
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
        self._enter(Phase.BODY)
        self._stepped = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._got_on = True
        self._stepped += len(body)
        if self._stepped >= self.bounds.body_step_bytes:
            self.places.got_on(self)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._enter(Phase.BETWEEN)
        super().on_message_complete()

    def _enter(self, phase: Phase) -> None:
        self._phase, self._got_on = phase, True

    def _count_head(self, number: int) -> None:
        self._head_bytes += number
        if self._head_bytes > self.bounds.max_head_bytes:
            self._give_up()

    def _give_up(self) -> NoReturn:
        self._too_much = True
        raise _TooMuchError  # the parser stops, and uvicorn calls `send_400_response`

    # The time in which it comes.

    def _set_clock(self) -> None:
        self._note_owing()
        awaited = self._waits_for()
        # Not set anew with every byte: a byte now and then would put it off for ever.
        if awaited is not self._awaited:
            cancel(self._clock)
            self._awaited = awaited
            self.places.got_on(self)
            self._clock = None if awaited is None else self._later()

    def _later(self) -> asyncio.TimerHandle:
        return self.loop.call_later(self.bounds.receive_timeout_s, self._late)

    def _late(self) -> None:
        """Refuse who is late, unless a good piece of the body has come, or it is we who do not take it."""
        if self._refused:
            return
        answered = self._answering() and self.cycle.response_started
        taken = self._stepped >= self.bounds.body_step_bytes or self.flow.read_paused or answered
        if self._awaited is Phase.BODY and taken:
            self._stepped = 0
            self._clock = self._later()
        elif self._awaited is Phase.HEAD and self._phase is Phase.BETWEEN:
            self.transport.close()  # nothing was asked
        else:
            self._refuse("request_timeout", "The request did not come in time.")

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
