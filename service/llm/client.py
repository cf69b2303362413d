"""The client of an OpenAI-compatible LLM server: vLLM first, and others where they differ."""

import asyncio
import itertools
import json
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import (
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from dataclasses import replace
from typing import Any

import httpx2

from service.errors import (
    DeadlineExceeded,
    EigencalError,
    LLMBadResponse,
    LLMUnavailable,
    ModelNotFound,
    Overloaded,
)
from service.llm import wire
from service.llm.connection import (
    Connections,
    HealthProbe,
    api_base,
    before_retry,
    endpoint,
)
from service.llm.forward import BROKEN_OFF, Reply
from service.llm.prompt import GREEDY_BELOW, Api, GenerationRequest, LLMIdentity, Priority
from service.llm.queue import CallQueue
from service.llm.samples import Generation, Usage
from service.llm.sse import find_events
from service.lru import LRU

CHECK_TIMEOUT_S = 5.0
LEARNED_KEPT_S = 600.0  # then the full call is tried again: servers are updated, and errors pass
RECENT = 64
MAX_LEARNED = 4096  # bounded, because callers may name any number of models
# The default timeout of OpenAI's clients. Without a limit a hung call would keep its permit for ever.
SILENCE_S = 600.0
MAX_STATUS = 599
MIN_SECRET_CHARS = 12  # a shorter key is a placeholder, such as "none" or "token", that other text contains
_ASKS_FOR_STREAM = re.compile(rb'"stream"\s*:\s*true')


class LLM:
    """Draws answers from a server, and forwards callers' calls to it.

    `base_url`: with or without /v1. `model`: None or "" for the first model that the server lists.
    `queue`: its permits are for the calls of all methods; a caller of `forward` holds one.

    One call asks for all answers, unless the server was seen to return fewer. A server that refuses a call is
    asked again in the next dialect (see `in_dialect`), and what it takes is remembered for a while. Answers
    of two models are never mixed; they raise LLMBadResponse. At a sampling temperature of 0 all answers are
    equal, so one is drawn and repeated.

    After `timeout_s` seconds, or the request's `deadline_s`, a request raises DeadlineExceeded. Waiting and
    retries are included. Connection errors and the status codes in `TRY_AGAIN` are retried, after a
    Retry-After of at most 5 s. A forwarded call is not retried, except if a kept connection fails before the
    response arrives.
    """

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        api: Api = "chat",
        api_key: str = "",
        timeout_s: float = 120.0,
        silence_s: float | None = None,
        queue: CallQueue | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._base = api_base(base_url, "EIGENCAL_LLM_URL")
        self._model = self._configured_model = model or ""
        self.api: Api = api  # for prompts
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._silence_s = silence_s or max(timeout_s, SILENCE_S)
        self.queue = queue or CallQueue(64, 16)
        self.failures = Counter[str]()  # number of failed calls by error code; all dialects count as one call
        # Observed limits of the server, by model and name. "dialect", "dialect of questions": the first that
        # it takes. "n": the number of answers that a call returned. "logprobs": 1 if it returns none without
        # alternatives, 2 if it returns none at all. "forward": the position of the content that it takes.
        self.learned: LRU[tuple[str, str], int] = LRU(MAX_LEARNED, kept_s=LEARNED_KEPT_S)
        # The dialect of the latest success, by kind of call, with one answer or with several.
        self._accepted: LRU[tuple[str, str], int] = LRU(MAX_LEARNED, kept_s=LEARNED_KEPT_S)
        # The answering model and the omitted parameters, by key of the request (see `_request_key`).
        self._answered_by: LRU[tuple[str, Api, bool, bool], tuple[str, tuple[str, ...]]] = LRU(MAX_LEARNED)
        # How long the latest calls for answers took, in seconds. Calls of jobs are left out.
        self._took_s: deque[float] = deque(maxlen=RECENT)
        self._check = HealthProbe(self._ask_health)
        self._connections = Connections(self._base, api_key=api_key, transport=transport)

    async def start(self) -> None:
        """Ask for the model's name if none is configured. A server that is not up yet is asked later."""
        if not self._model:
            with suppress(EigencalError):
                await self._first_model()

    async def stop(self) -> None:
        """Close all connections; idempotent."""
        await self._connections.close()

    async def check(self) -> None:
        """Check the server's health, at most once a second. Raises LLMUnavailable."""
        await self._check()

    def identity(self, request: GenerationRequest) -> LLMIdentity:
        """Return the identity of the last answers to such a request, else the expected identity."""
        model = request.model or self._model
        answered_by = self._answered_by.get(_request_key(model, request))
        model, omitted = answered_by or (model, ())
        prompt = request.prompt
        return LLMIdentity(model, prompt.api, prompt.shape, omitted, answered=answered_by is not None)

    async def generate(self, request: GenerationRequest) -> Generation:
        """Draw `request.num_samples` answers.

        Cancelling the task frees the server. Raises LLMUnavailable, LLMError, LLMBadResponse, ModelNotFound,
        DeadlineExceeded, Overloaded.
        """
        is_greedy = request.sampling.temperature < GREEDY_BELOW
        wanted = 1 if is_greedy else request.num_samples
        deadline_s = self._timeout_s if request.deadline_s is None else request.deadline_s
        ends = asyncio.get_running_loop().time() + min(deadline_s, self._timeout_s)
        name = request.model or self._model
        num_calls = -(-wanted // (self.learned.get((name, "n")) or wanted))
        # The calls of a question belong to a request that has been admitted.
        with nullcontext() if request.is_question else self.queue.admitted(request.priority, num_calls):
            model = name or await self._first_model()
            drawn, numbers, missing = list[Generation](), itertools.count(), wanted
            # If a round returns too few answers, the next round asks for the rest.
            while missing > 0:
                size = min(missing, self.learned.get((model, "n")) or missing)
                sizes = [min(size, missing - begin) for begin in range(0, missing, size)]
                try:
                    async with asyncio.TaskGroup() as group:
                        calls = [
                            group.create_task(self._call(request, model, n, next(numbers), ends))
                            for n in sizes
                        ]
                except BaseExceptionGroup as failed:
                    if not request.model and isinstance(failed.exceptions[0], ModelNotFound):
                        # The server has changed: ask for the name of its model again.
                        self._model = self._configured_model
                    raise failed.exceptions[0] from None
                drawn += [call.result() for call in calls]
                missing = wanted - sum(len(part.draws) for part in drawn)
        answered_by = {(part.model, part.omitted) for part in drawn}
        if len(answered_by) > 1:
            raise LLMBadResponse("The LLM server answered one request with two models, or in two ways.")
        if not request.is_question:  # it is written in another way than draws
            self._answered_by.put(_request_key(model, request), *answered_by)
        draws = tuple(draw for part in drawn for draw in part.draws)[:wanted]
        return replace(
            drawn[0],
            draws=draws * request.num_samples if is_greedy else draws,
            usage=sum((part.usage for part in drawn), Usage()),
            max_tokens=next((part.max_tokens for part in drawn if part.max_tokens), None),
        )

    @asynccontextmanager
    async def permit(self) -> AsyncIterator[ExitStack]:
        """Wait up to `timeout_s` for the right to forward one call; see `CallQueue.permit`.

        Raises Overloaded at once if too many calls wait, and DeadlineExceeded.
        """
        ends = asyncio.get_running_loop().time() + self._timeout_s
        with ExitStack() as counted:
            counted.enter_context(self.queue.admitted(Priority.LIVE))
            async with self.queue.permit(Priority.LIVE, ends) as permit:
                permit.callback(counted.close)
                yield permit

    @asynccontextmanager
    async def forward(
        self,
        path: str,
        *contents: bytes | None,
        headers: Mapping[str, str] | None = None,
        kind: str = "",
    ) -> AsyncIterator[Reply]:
        """Send a caller's call and yield the answer, of any status, as soon as its head has arrived.

        path: below the base URL. contents: forms of the body, None for a GET; the next is sent if the server
        refuses one, and the form that it takes is remembered for calls of this `kind`. Time is not limited
        while the server sends something. Raises LLMUnavailable if the server cannot be reached,
        DeadlineExceeded if it does not respond, and LLMBadResponse for an answer that is not HTTP.
        """
        url, key = endpoint(self._base, path), (kind, "forward")
        secret = self._api_key.encode() if len(self._api_key) >= MIN_SECRET_CHARS else b""
        refusing = 0
        for attempt in range(min(self.learned.get(key) or 0, len(contents) - 1), len(contents)):
            content = contents[attempt]
            async with AsyncExitStack() as ending:
                method = "GET" if content is None else "POST"
                stream = self._connections.stream(method, url, content, headers, silence_s=self._silence_s)
                try:
                    response = await ending.enter_async_context(stream)
                except (httpx2.ReadTimeout, httpx2.WriteTimeout):
                    raise DeadlineExceeded("The LLM server does not respond.") from None
                except httpx2.TransportError:
                    raise LLMUnavailable("The LLM server cannot be reached.") from None
                status = response.status_code
                if status > MAX_STATUS:
                    raise LLMBadResponse("The LLM server answered with a status that does not exist in HTTP.")
                if status in wire.REFUSING and attempt < len(contents) - 1:
                    refusing = status
                    continue
                if refusing not in (0, 500) and 200 <= status < 300:  # a 500 may have another cause
                    self.learned.put(key, attempt)
                streams = content is not None and status < 300 and _ASKS_FOR_STREAM.search(content)
                kind_of_content = response.headers.get("content-type", "")
                try:
                    is_stream, body = await find_events(
                        kind_of_content, response.aiter_raw(), stream_requested=bool(streams)
                    )
                except httpx2.TransportError:
                    raise LLMUnavailable(BROKEN_OFF) from None
                yield Reply(response, body, is_stream=is_stream, attempt=attempt, secret=secret)
                return

    # From a request to a reply

    async def _call(
        self, request: GenerationRequest, model: str, n: int, number: int, ends: float
    ) -> Generation:
        """Ask for n answers, in the first dialect that the server takes. number: of the call in its request.

        The last attempt asks for the request's smaller number of tokens, if there is one: the context may
        have no room for more.
        """
        api = request.prompt.api
        path, on_api = wire.PATHS[api], f"{wire.PATHS[api]} {model}"
        lacking = self.learned.get((on_api, "logprobs")) or 0
        body = wire.body_of(request, model, n=n, call=number, lacking=lacking)
        # A server may give one answer with alternatives in a dialect that it refuses for several answers.
        kind = "dialect of questions" if request.num_alternatives else "dialect"
        known = self.learned.get((on_api, kind)) or 0
        attempts = deque(
            (dialect, wire.in_dialect(body, dialect)) for dialect in range(known, wire.NUM_DIALECTS)
        )
        if request.fallback_max_tokens is not None:
            fewer = wire.in_dialect(body | {"max_tokens": request.fallback_max_tokens}, known)
            attempts.append((known, fewer))
        accepted, refusals, has_repeated = (on_api, f"{kind}, n = 1 {n == 1}"), list[EigencalError](), False
        while attempts:
            dialect, sent = attempts.popleft()
            if request.num_alternatives and "logprobs" not in sent:
                continue
            try:
                drawn = await self._post(path, sent, request, n, ends)
            except EigencalError as error:
                status = error.extra.get("llm_status")
                if status not in wire.REFUSING:
                    self.failures[error.code] += 1
                    raise
                if status == 500 and not has_repeated:  # it may pass, and have another cause
                    has_repeated = True
                    attempts.appendleft((dialect, sent))
                elif status == 500 and self._accepted.get(accepted) == dialect:
                    self.failures[error.code] += 1
                    raise  # the server has taken such calls: it fails, and refuses nothing
                refusals.append(error)
                continue
            self._accepted.put(accepted, dialect)
            # Learned only after success: the server may refuse this call for another reason.
            if dialect != known:
                self.learned.put((on_api, kind), dialect)
            if len(drawn.draws) < n:
                self.learned.put((model, "n"), len(drawn.draws))
            if "logprobs" in sent and not request.num_alternatives and wire.lacks_logprobs(drawn.draws):
                is_last_try = "top_logprobs" in sent or api != "chat"
                self.learned.put((on_api, "logprobs"), 2 if is_last_try else 1)
            limit = sent.get("max_tokens", sent.get("max_completion_tokens"))
            return replace(
                drawn,
                model=drawn.model or model,
                omitted=tuple(name for name in wire.WITHOUT_EFFECT if name not in sent),
                max_tokens=None if limit == request.sampling.max_tokens else limit,
            )
        self.failures[refusals[0].code] += 1
        raise refusals[0]

    async def _post(
        self, path: str, body: wire.Body, request: GenerationRequest, n: int, ends: float
    ) -> Generation:
        """Send one call of an admitted request when its turn has come, and retry it where that helps."""
        url, content = endpoint(self._base, path), json.dumps(body).encode()
        max_bytes = max(wire.MAX_ANSWER_BYTES, n * request.sampling.max_tokens * wire.MAX_TOKEN_BYTES)
        clock = asyncio.get_running_loop().time
        asked_at, has_waited, is_job = clock(), not self.queue.free, request.priority == Priority.JOB
        async with self.queue.permit(request.priority, ends):
            begun, usual_s = clock(), sorted(self._took_s)[int(0.9 * len(self._took_s)) :]
            # The answer would be too late, so the permit goes to a call that has the time.
            if has_waited and not is_job and usual_s and ends - begun < usual_s[0]:
                raise Overloaded("Too little time is left: too many calls wait for the LLM.")
            try:
                async with asyncio.timeout_at(ends):
                    for attempt in itertools.count():
                        try:
                            async with self._connections.stream("POST", url, content) as response:
                                drawn = await wire.samples_of(response, max_bytes, self._api_key)
                                break
                        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError):
                            failure = LLMUnavailable("The LLM server cannot be reached.")
                        except LLMUnavailable as error:
                            failure = error
                        await before_retry(failure, attempt, ends)
            except TimeoutError:
                raise DeadlineExceeded("No answer came in time.") from None
            except httpx2.RequestError:
                raise LLMUnavailable(BROKEN_OFF) from None
            if not is_job and not request.is_question:
                self._took_s.append(clock() - begun)
            return replace(drawn, queued_s=begun - asked_at)

    # The model's name and the server's health

    async def _ask_health(self) -> None:
        """List the models, which costs no tokens. For vLLM also check GET /health, which tests its engine.

        Other servers are not asked for /health: a gateway may answer it with a call to each of its models.
        """
        status, models = await self._get(endpoint(self._base, "/models"))
        if any(model.get("owned_by") == "vllm" for model in models):
            root = self._base.path.removesuffix("/v1")
            status, _ = await self._get(self._base.copy_with(path=f"{root}/health"))
        if status >= 500 and status != 501:
            raise LLMUnavailable("The LLM server reports that it is unhealthy.")
        self._learn_model(status, models)

    async def _first_model(self) -> str:
        self._learn_model(*await self._get(endpoint(self._base, "/models")))
        return self._model

    def _learn_model(self, status: int, models: list[dict[str, Any]]) -> None:
        names = (model.get("id") or model.get("name") for model in models)
        with suppress(ValueError):
            self._model = self._model or wire.model_name(next(names, None))
        if not self._model:
            cause = "" if status == 200 else f" (status {status})"
            raise LLMUnavailable(f"The LLM server lists no model{cause}: set EIGENCAL_LLM_MODEL.")

    async def _get(self, url: httpx2.URL) -> tuple[int, list[dict[str, Any]]]:
        """Return the status and the models that the body lists, without a permit. Raises LLMUnavailable."""
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                async with self._connections.stream("GET", url) as response:
                    return response.status_code, wire.listed_models(await wire.read(response))
        except (httpx2.RequestError, TimeoutError):
            raise LLMUnavailable("The LLM server cannot be reached.") from None
        except LLMBadResponse as error:
            raise LLMUnavailable(error.detail) from None


def _request_key(model: str, request: GenerationRequest) -> tuple[str, Api, bool, bool]:
    return model, request.prompt.api, request.sampling.top_k > 0, request.sampling.top_p < 1
