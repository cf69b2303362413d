"""Cancel the work for callers who have left, and release what it holds."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing

from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CLIENT_CLOSED_REQUEST = 499  # of a request that ends before its response starts; nobody receives it


class CancelOnDisconnect:
    """Reads the body of a request, and cancels the request when its caller disconnects.

    Without this a handler would continue after its caller has gone, and keep the LLM busy for nobody.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        messages = [await receive()]
        while messages[-1].get("more_body"):
            messages.append(await receive())
        messages.reverse()
        last: Message = {}  # sent so far

        async def receive_body() -> Message:
            if not messages:
                await asyncio.Event().wait()  # only `disconnected` learns of the disconnect
            return messages.pop()

        async def send_response(message: Message) -> None:
            nonlocal last
            last = message
            await send(message)

        async def disconnected() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        # Since version 2.4 of ASGI, Starlette's responses do not listen for the disconnect themselves.
        scope["asgi"] = {**scope.get("asgi", {}), "spec_version": "2.4"}
        work = asyncio.ensure_future(self._app(scope, receive_body, send_response))
        gone = asyncio.ensure_future(disconnected())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            is_answered = last.get("type") == "http.response.body" and not last.get("more_body")
            if work.done() or is_answered:  # servers report a disconnect after the response, too
                await work
        finally:
            gone.cancel()
            is_cancelled = not work.done()
            if is_cancelled:
                work.cancel()
                # Wait until it has released the LLM. Its outcome is ignored, since the caller has gone.
                await asyncio.gather(work, return_exceptions=True)
        if is_cancelled and not last:
            await Response(status_code=CLIENT_CLOSED_REQUEST)(scope, receive, send)


class StreamingBody(StreamingResponse):
    """Sends pieces as they arrive. Closes them and `ending` at the end, or when the request is cancelled."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        pieces: AsyncGenerator[bytes, None],
        ending: AsyncExitStack | None = None,
    ) -> None:
        super().__init__(pieces, status, headers)
        self._pieces = pieces
        self._ending = ending or AsyncExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        async with self._ending, aclosing(self._pieces):
            await super().__call__(scope, receive, send)
