"""A small OpenAI-compatible server of one model: chats, completions, responses, models and health."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from demo.calls import Call, ChatCall, Refusal, ResponsesCall, TextCall
from demo.model import Model, Token
from demo.replies import Completion, ModelResponse, Steps
from service.http.door import CancelOnDisconnect, StreamingBody
from service.llm.prompt import Sampling

MAX_OPEN = 17  # calls: one is answered, the others wait in order
EVENTS = {"content-type": "text/event-stream", "cache-control": "no-cache"}


class LLMServer:
    """The routes. One worker thread answers one call at a time, and more than `max_open` calls get 429.

    A caller who disconnects frees the model at the next token.
    """

    def __init__(self, model: Model, max_open: int = MAX_OPEN) -> None:
        self._model = model
        self._max_open = max_open
        self._num_open = 0
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="llm")

    def app(self) -> Starlette:
        """Return the application."""
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/v1/completions", self.completion, methods=["POST"]),
                Route("/v1/responses", self.response, methods=["POST"]),
                Route("/v1/models", self.models),
                Route("/health", self.health),
            ],
            middleware=[Middleware(CancelOnDisconnect)],
            exception_handlers={Refusal: _refused, HTTPException: _no_route},
            lifespan=self._lifespan,
        )

    async def chat(self, request: Request) -> Response:
        """Answer a chat."""
        call = ChatCall.read(await request.body())
        prompt = self._model.chat_tokens([turn.message() for turn in call.messages])
        return await self._complete(request, call, prompt)

    async def completion(self, request: Request) -> Response:
        """Continue a text."""
        call = TextCall.read(await request.body())
        return await self._complete(request, call, self._model.tokens(call.text))

    async def response(self, request: Request) -> Response:
        """Answer a call of the Responses API."""
        call = ResponsesCall.read(await request.body())
        prompt = self._model.chat_tokens(call.turns())
        reply = ModelResponse(call, self._model.name, len(prompt))
        return await self._answer(request, call, prompt, reply, 1, call.top_logprobs or 0)

    async def models(self, _: Request) -> Response:
        """List the model."""
        model = {"id": self._model.name, "object": "model", "created": 0, "owned_by": "eigencal"}
        return JSONResponse({"object": "list", "data": [model]})

    async def health(self, _: Request) -> Response:
        """Answer as soon as the model is loaded."""
        return Response()

    async def _complete(self, request: Request, call: ChatCall | TextCall, prompt: list[int]) -> Response:
        reply = Completion(call, self._model.name, len(prompt))
        return await self._answer(request, call, prompt, reply, call.n or 1, call.num_alternatives or 0)

    async def _answer(
        self,
        request: Request,
        call: Call,
        prompt: list[int],
        reply: Completion | ModelResponse,
        count: int,
        num_alternatives: int,
    ) -> Response:
        if call.model not in (None, "", self._model.name):
            message = f"The model `{call.model}` does not exist; this server has `{self._model.name}`."
            raise Refusal(message, "model", "model_not_found", status=404)
        sampling = call.sampling(len(prompt))
        async with AsyncExitStack() as ending:
            steps = ending.enter_context(self._drawing(prompt, count, sampling, num_alternatives))
            if call.stream:
                return StreamingBody(200, EVENTS, reply.stream(steps), ending.pop_all())
            return JSONResponse(await reply.whole(steps))
        raise AssertionError("unreachable: the block returns or raises")

    @contextmanager
    def _drawing(
        self, prompt: Sequence[int], count: int, sampling: Sampling, num_alternatives: int
    ) -> Iterator[Steps]:
        """Draw in the worker until the block ends; yield the steps. Raises Refusal if too many calls wait."""
        if self._num_open >= self._max_open:
            message = "Too many calls wait for the model. Please try again."
            raise Refusal(message, code="rate_limit_exceeded", status=429, kind="requests")
        loop, is_over = asyncio.get_running_loop(), threading.Event()
        steps: asyncio.Queue[list[Token] | None] = asyncio.Queue()

        def draw() -> None:
            try:
                for step in self._model.draw(prompt, count, sampling, num_alternatives):
                    if is_over.is_set():
                        return
                    loop.call_soon_threadsafe(steps.put_nowait, step)
            finally:
                loop.call_soon_threadsafe(steps.put_nowait, None)

        async def drawn() -> AsyncIterator[list[Token]]:
            while (step := await steps.get()) is not None:
                yield step
            await work

        self._num_open += 1
        work = loop.run_in_executor(self._worker, draw)
        try:
            yield drawn()
        finally:
            self._num_open -= 1
            is_over.set()
            work.cancel()  # unless it has begun

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        yield
        # In a thread, because the event loop has to end the cancelled calls first.
        await asyncio.to_thread(self._worker.shutdown)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response()


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{error.detail}: {request.method} {request.url.path}"
    return Refusal(message, status=error.status_code).response()
