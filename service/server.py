"""How many connections there are at once, and which gives up its place when there are too many."""

import asyncio
import errno
import logging
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, NoReturn, Protocol, cast

import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from service.api.errors import DEFAULT_RETRY_AFTER_S, ErrorLog, problem_body, problem_response
from service.api.headers import SECURITY_HEADERS
from service.api.middleware import new_request_id

LEAVING = 50  # open files beside the bound: enough for a burst, few beside the usual 1024


class Holder(Protocol):
    """A connection, as far as its place is concerned."""

    def may_give_way(self) -> bool:
        """Tell whether closing it now cuts no answer that its caller takes."""

    def give_way(self) -> None:
        """Go, with a word where that would be understood."""

    def drop(self) -> None:
        """Go at once."""


class Places:
    """The connections of a server in the order in which they are to go.

    `owing`: those that owe us a request, or the taking of what they were sent, the longest first.
    `leaving`: those that were refused, and are listened to a little longer. They do not count.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._owing: dict[Holder, None] = {}  # a dict keeps its order: whoever came first stays first
        self._leaving: dict[Holder, None] = {}

    def admit(self, newcomer: Holder, present: int) -> None:
        """Let someone go if there are too many: who has owed longest, or else the newcomer."""
        if present - len(self._leaving) > self._number:
            next((one for one in self._owing if one.may_give_way()), newcomer).give_way()

    def note(self, holder: Holder, *, owes: bool) -> None:
        """Remember whether a connection owes something."""
        if owes:
            self._owing.setdefault(holder)
        else:
            self._owing.pop(holder, None)

    def got_on(self, holder: Holder) -> None:
        """Put one that owes behind all others."""
        if holder in self._owing:
            del self._owing[holder]
            self._owing[holder] = None

    def leave(self, holder: Holder) -> None:
        """Count it no longer. Past `LEAVING` the first that left is dropped."""
        self._owing.pop(holder, None)
        self._leaving[holder] = None
        if len(self._leaving) > LEAVING:
            next(iter(self._leaving)).drop()

    def forget(self, holder: Holder) -> None:
        """Take note that it has gone."""
        self._owing.pop(holder, None)
        self._leaving.pop(holder, None)


# The way out of a connection: refusals of our own, answers that nobody takes, callers that hang up.
#
# Nothing here cuts an answer: a caller may wait for one, or listen to events, for as long as it reads.

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


# One HTTP/1.1 connection: uvicorn's, with bounds on what a caller may send, and on the time it takes.
#
# uvicorn bounds neither the head of a request nor the time in which it comes: an endless header line is put
# together anew with every piece that arrives, and a caller that sends nothing is waited for without end.


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


# The addresses that the service listens on: taken before anything is loaded, opened once all is ready.

log = logging.getLogger("uvicorn.error")

# An address that a name has but this machine has not: `localhost` is ::1, too, where IPv6 is off.
ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class AddressError(Exception):
    """The address cannot be had; the message says why, in one line."""


@contextmanager
def bound(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Yield a socket bound to each address of `host`; they do not listen yet, and are closed at the end.

    Port 0 is a free one, the same for every address. Raises AddressError.
    """
    with ExitStack() as opened:
        try:
            sockets = _bind_all(opened, host, port)
        except (OSError, UnicodeError) as error:
            raise AddressError(cannot_listen(host, port, error)) from error
        yield sockets


def cannot_listen(host: str, port: int, error: Exception) -> str:
    """Return why an address cannot be had, with the settings that name it."""
    why = getattr(error, "strerror", None) or "no host name"
    return f"Cannot start: EIGENCAL_HOST={host} EIGENCAL_PORT={port} cannot be listened on: {why}."


def _bind_all(opened: ExitStack, host: str, port: int) -> list[socket.socket]:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    absent: OSError | None = None
    # A name may lead to one address twice, and one socket is enough.
    for family, address in dict.fromkeys((info[0], info[4]) for info in found):
        try:
            one = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
            _bind(one, (address[0], port, *address[2:]))
        except OSError as error:
            if error.errno not in ABSENT:
                raise
            absent = error
        else:
            # Port 0 has become a number: the other addresses take the same.
            sockets.append(one)
            port = one.getsockname()[1]
    if absent is not None and not sockets:
        raise absent
    return sockets


def _bind(one: socket.socket, address: tuple[Any, ...]) -> None:
    # So that a restart need not wait for the last connections to time out.
    if os.name == "posix":  # elsewhere this would let two processes share a port
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Else [::] takes the port of IPv4, too, and 0.0.0.0 cannot be bound beside it.
    if one.family == socket.AF_INET6:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    one.bind(address)


def configured(
    app: Any, bounds: Bounds | None = None, errors: ErrorLog | None = None, **options: Any
) -> uvicorn.Config:
    """Return how an application is served: its connections bounded, the server's own name unsaid.

    `errors`: where connections that are refused are told, the application's own log of errors.
    """
    protocol = bounded_protocol(bounds or Bounds(), errors or ErrorLog())
    return uvicorn.Config(app, http=protocol, ws="none", server_header=False, **options)


def run(config: uvicorn.Config, sockets: Sequence[socket.socket]) -> None:
    """Serve on sockets that are bound, until a signal ends it. Exits with a code when it cannot start."""
    server = _Server(config)
    try:
        server.run(sockets=list(sockets))
    except KeyboardInterrupt:  # the signal that ended it, raised again
        return


class _Server(uvicorn.Server):
    """Says where it listens, which uvicorn keeps to itself when it is given the sockets."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        host, listening = self.config.host, sockets or []
        try:
            await super().startup(sockets)
            for one in listening:  # once more: uvloop keeps quiet about a socket that could not
                one.listen(self.config.backlog)
        except OSError:  # bound by two processes at once, and the other was the first to listen
            await self.lifespan.shutdown()
            in_use = OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
            log.error(cannot_listen(host, self.config.port, in_use))  # noqa: TRY400  # for the operator
            sys.exit(2)
        shown = f"[{host}]" if ":" in host else host or "0.0.0.0"  # noqa: S104  # told, not bound
        port = listening[0].getsockname()[1] if listening else self.config.port
        log.info("Uvicorn running on http://%s:%d (Press CTRL+C to quit)", shown, port)
