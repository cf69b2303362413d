"""The connections of a client, never shared by two processes."""

import os
from collections.abc import Callable
from typing import Generic, TypeVar

import httpx

from eigencal._errors import InvalidSetup

C = TypeVar("C", httpx.Client, httpx.AsyncClient)


class Pool(Generic[C]):
    """An httpx client, and a new one after a fork.

    Two processes that read from one socket would take each other's answers.

    Args:
        make: Makes the httpx client.
        renews: Whether a second one may be made: not where sockets of the caller's own were handed in.
    """

    def __init__(self, make: Callable[[], C], renews: bool) -> None:
        self._make: Callable[[], C] = make
        self._renews = renews
        self._http: C = make()
        self._process = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether the connections were made by this process."""
        return self._process == os.getpid()

    def http(self) -> C:
        """Return the httpx client of this process. Raises InvalidSetup where it has none."""
        if not self.is_here:
            if not self._renews:
                raise InvalidSetup(
                    "This client was made before a fork, with an `http_client` or a `transport` of yours: "
                    "make another in the new process, since answers would go to the wrong one."
                )
            # The old one is left as it is: another thread may have held its lock in the moment of the fork.
            self._http, self._process = self._make(), os.getpid()
        return self._http
