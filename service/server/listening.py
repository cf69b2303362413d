"""The addresses that the service listens on: taken before anything is loaded, opened once all is ready."""

import errno
import logging
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import uvicorn

from service.api.http.error_log import ErrorLog
from service.server.answers import Bounds
from service.server.connection import bounded_protocol

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
