"""Drive the synchronous and the asynchronous Python client alike, so that a test is written once for both."""

import inspect
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import httpx2 as httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal

from eigencal import AsyncClient, Client

Answer = Callable[[httpx.Request], httpx.Response]


class Driver(Protocol):
    """Creates a client of either kind. Its methods return results, or iterators of results."""

    def __call__(self, url: str | None = None, **options: Any) -> AbstractContextManager[Any]: ...


@contextmanager
def waiting(url: str | None = None, *, answer: Answer | None = None, **options: Any) -> Iterator[Any]:
    """Yield a synchronous client. `answer`: replaces the network."""
    if answer is not None:
        options["http_client"] = httpx.Client(transport=httpx.MockTransport(answer))
    with Client(url, **options) as client:
        yield client


@contextmanager
def awaited(url: str | None = None, *, answer: Answer | None = None, **options: Any) -> Iterator[Any]:
    """Yield an asynchronous client in its own event loop."""
    if answer is not None:
        options["http_client"] = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    with start_blocking_portal() as portal:
        with portal.wrap_async_context_manager(AsyncClient(url, **options)) as client:
            yield _Driven(client, portal)


class _Driven:
    """An asynchronous object, driven from outside of its event loop."""

    def __init__(self, inner: Any, portal: BlockingPortal) -> None:
        self._inner, self._portal = inner, portal

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if inspect.isasyncgenfunction(attribute):
            return lambda *args, **options: self._items(attribute(*args, **options))
        if inspect.iscoroutinefunction(attribute):
            return lambda *args, **options: self._result(attribute, args, options)
        return attribute

    def __repr__(self) -> str:
        return repr(self._inner)

    def _result(self, method: Any, args: Any, options: Any) -> Any:
        async def call() -> Any:
            return await method(*args, **options)

        return self._portal.call(call)

    def _items(self, items: AsyncGenerator[Any, None]) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(items, None)

        try:
            while (item := self._portal.call(following)) is not None:
                yield item
        finally:
            self._portal.call(items.aclose)
