"""Both Python clients driven alike: a test is written once, for callers that wait and that await."""

import inspect
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import httpx2 as httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal

from eigencal import AsyncClient, Client

Answer = Callable[[httpx.Request], httpx.Response]


class Driver(Protocol):
    """Makes a client; its methods return results, or iterators of them, whichever kind it is."""

    def __call__(self, url: str | None = None, **options: Any) -> AbstractContextManager[Any]: ...


@contextmanager
def waiting(url: str | None = None, *, answer: Answer | None = None, **options: Any) -> Iterator[Any]:
    """Yield a client that waits. `answer`: in place of sockets."""
    if answer is not None:
        options["http_client"] = httpx.Client(transport=httpx.MockTransport(answer))
    with Client(url, **options) as client:
        yield client


@contextmanager
def awaited(url: str | None = None, *, answer: Answer | None = None, **options: Any) -> Iterator[Any]:
    """Yield a client that is awaited, in an event loop of its own."""
    if answer is not None:
        options["http_client"] = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    with start_blocking_portal() as portal:
        with portal.wrap_async_context_manager(AsyncClient(url, **options)) as client:
            yield _Driven(client, portal)


class _Driven:
    """Something awaited, driven from outside of its loop."""

    def __init__(self, inner: Any, portal: BlockingPortal) -> None:
        self._inner, self._portal = inner, portal

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if inspect.isasyncgenfunction(found):
            return lambda *args, **options: self._items(found(*args, **options))
        if inspect.iscoroutinefunction(found):
            return lambda *args, **options: self._result(found, args, options)
        return found

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
