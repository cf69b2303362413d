"""The client of OpenAI-compatible LLM servers: vLLM first, and others where they differ."""

import asyncio
import itertools
import json
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import httpx2

from service.addresses import api_base, endpoint
from service.errors import (
    DeadlineExceeded,
    EigencalError,
    LLMBadResponse,
    LLMUnavailable,
    ModelNotFound,
)
from service.llm.admission import AdmissionQueue
from service.llm.port import (
    GREEDY_BELOW,
    Api,
    Generation,
    GenerationRequest,
    LLMIdentity,
    Priority,
    PromptShape,
    Usage,
)
from service.llm.wire import (
    DIALECTS,
    PATHS,
    REFUSAL_BYTES,
    REFUSING,
    WITHOUT_EFFECT,
    Body,
    Reply,
    build_body,
    error_of,
    lacks_logprobs,
    max_bytes_of,
    model_name,
    read,
    read_reply,
    without,
)
from service.lru import LRU
from service.remote import (
    TRY_AGAIN,
    Connections,
    HealthProbe,
    TransientError,
    retry_after_s,
    with_retries,
)

CHECK_TIMEOUT_S = 5.0
MAX_RETRIES = 3
QUIRK_KEPT_S = 600.0  # then the full call is tried again: servers are updated, and errors pass
MAX_QUIRKS = 1024  # bounded, because callers may name any number of models


class ServerQuirks:
    """Observed limits of a server, by model.

    Names: "dialect", the first of `DIALECTS` that the server takes, and "dialect of questions"; "n", the
    number of choices that a call returned; "logprobs", 1 if the server returns none without alternatives, 2
    if it returns none at all.
    """

    def __init__(self) -> None:
        self._seen: LRU[tuple[str, str], tuple[float, int]] = LRU(MAX_QUIRKS)

    def record(self, model: str, name: str, value: int) -> None:
        """Remember a quirk."""
        self._seen.put((model, name), (time.monotonic(), value))

    def get(self, model: str, name: str) -> int:
        """Return the value of a quirk; 0 if unknown or too old, so that the full call is tried."""
        seen = self._seen.get((model, name))
        return 0 if seen is None or time.monotonic() - seen[0] > QUIRK_KEPT_S else seen[1]


class HttpLanguageModel:
    """Draws answers from a server.

    `base_url`: with or without /v1. `model`: None or "" for the first model that the server lists.
    One call asks for all answers, unless the server was seen to return fewer. A server that refuses a call is
    asked again in the next of `DIALECTS`; see `ServerQuirks`. Answers of two models are never mixed; they
    raise LLMBadResponse. Calls wait for a permit of `queue`, which raises Overloaded if it has no room for a
    request.
    At a sampling temperature of 0 all answers are equal, so one is drawn and repeated.
    After `timeout_s` seconds, or the request's `deadline_s`, a call raises DeadlineExceeded. Waiting and
    retries are included. Connection errors and the status codes in `TRY_AGAIN` are retried `MAX_RETRIES`
    times, after a Retry-After of at most 5 s.
    """

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        api: Api = "chat",
        api_key: str = "",
        shape: PromptShape | None = None,
        timeout_s: float = 120.0,
        queue: AdmissionQueue | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._base = api_base(base_url, "EIGENCAL_LLM_URL")
        self._model = self._configured_model = model or ""
        self.api: Api = api  # for prompts
        self._api_key = api_key
        self._shape = shape or PromptShape()
        self._timeout_s = timeout_s
        self._queue = queue or AdmissionQueue(64, 16)
        self.failures = Counter[str]()  # number of failed calls by error code; all dialects count as one call
        self._quirks = ServerQuirks()
        # The answering model and the omitted parameters, by key of the request (see `_request_key`).
        self._answered_by: LRU[tuple[str, Api, bool, bool], tuple[str, tuple[str, ...]]] = LRU(MAX_QUIRKS)
        self._check = HealthProbe(self._ask_health)
        self._connections = Connections(self._base, api_key=api_key, transport=transport)

    async def start(self) -> None:
        """Ask for the model's name if none is configured. A server that is not up yet is asked later."""
        try:
            await self._resolve_model()
        except EigencalError:
            return

    async def stop(self) -> None:
        """Close all connections."""
        await self._connections.close()

    def identity(self, request: GenerationRequest) -> LLMIdentity:
        """Return the identity of the last answers to such a request, else the expected identity."""
        requested = request.model or self._model
        expected = self._shape.identity(request, model=requested, api=self.api)
        answered_by = self._answered_by.get(_request_key(requested, self.api, request))
        if answered_by is None:
            return replace(expected, answered=False)
        model, omitted = answered_by
        return replace(expected, model=model, omitted=omitted)

    async def generate(self, request: GenerationRequest) -> Generation:
        """Draw `request.num_samples` answers.

        Cancelling the task frees the server. Raises LLMUnavailable, LLMError, LLMBadResponse, ModelNotFound,
        DeadlineExceeded, Overloaded.
        """
        is_greedy = request.sampling.temperature < GREEDY_BELOW
        wanted = 1 if is_greedy else request.num_samples
        deadline_s = self._timeout_s if request.deadline_s is None else request.deadline_s
        ends = asyncio.get_running_loop().time() + min(deadline_s, self._timeout_s)
        calls = len(self._sizes(request.model or self._model, wanted))
        is_admitted = request.is_question
        with nullcontext() if is_admitted else self._queue.admitted(request.priority, calls):
            model = request.model or await self._resolve_model()
            try:
                replies = await self._draw(request, model, wanted, ends)
            except ModelNotFound:
                if not request.model:  # the server has changed: ask for the name of its model again
                    self._model = self._configured_model
                raise
        answered_by = {(reply.model, reply.omitted) for reply in replies}
        if len(answered_by) > 1:
            raise LLMBadResponse("The LLM server answered one request with two models, or in two ways.")
        [(answering, omitted)] = answered_by
        if not request.is_question:  # it is written in another way than draws
            self._answered_by.put(_request_key(model, self.api, request), (answering, omitted))
        draws = self._shape.read([draw for reply in replies for draw in reply.draws][:wanted])
        return Generation(
            draws=draws * request.num_samples if is_greedy else draws,
            model=answering,
            usage=Usage(
                sum(reply.usage.prompt_tokens for reply in replies),
                sum(reply.usage.completion_tokens for reply in replies),
            ),
            max_tokens=next((reply.max_tokens for reply in replies if reply.max_tokens), None),
            queued_s=replies[0].queued_s,
            omitted=omitted,
        )

    async def check(self) -> None:
        """Check the server's health, at most once a second. Raises LLMUnavailable."""
        await self._check()

    async def _ask_health(self) -> None:
        """List the models, which costs no tokens. For vLLM also check GET /health, which tests its engine.

        Other servers are not asked for /health: a gateway may answer it with a call to each of its models.
        """
        status, listed = await self._get(endpoint(self._base, "/models"))
        models = listed_models(listed)
        if any(model.get("owned_by") == "vllm" for model in models):
            root = self._base.path.removesuffix("/v1")
            status, _ = await self._get(self._base.copy_with(path=f"{root}/health"))
        if status >= 500 and status != 501:
            raise LLMUnavailable("The LLM server reports that it is unhealthy.")
        self._learn_model(status, models)

    async def _resolve_model(self) -> str:
        if not self._model:
            status, listed = await self._get(endpoint(self._base, "/models"))
            self._learn_model(status, listed_models(listed))
        return self._model

    def _learn_model(self, status: int, models: Sequence[Mapping[str, Any]]) -> None:
        names = (model.get("id") or model.get("name") for model in models)
        with suppress(ValueError):
            self._model = self._model or model_name(next(names, None))
        if not self._model:
            cause = "" if status == 200 else f" (status {status})"
            raise LLMUnavailable(f"The LLM server lists no model{cause}: set EIGENCAL_LLM_MODEL.")

    async def _get(self, url: httpx2.URL) -> tuple[int, Any]:
        """Return status and JSON (None if the body is not JSON), without a permit. Raises LLMUnavailable."""
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                async with self._connections.stream("GET", url) as response:
                    content = await read(response)
        except (httpx2.RequestError, TimeoutError):
            raise LLMUnavailable("The LLM server cannot be reached.") from None
        except LLMBadResponse as error:
            raise LLMUnavailable(error.detail) from None
        try:
            return response.status_code, json.loads(content)
        except (ValueError, RecursionError):
            return response.status_code, None

    # From a request to calls

    async def _draw(self, request: GenerationRequest, model: str, wanted: int, ends: float) -> list[Reply]:
        """Call until all answers are there. If a round returns too few, the next round asks for the rest."""
        replies, calls, missing = list[Reply](), itertools.count(), wanted
        while missing > 0:
            sizes = self._sizes(model, missing)
            if len(sizes) == 1:
                replies.append(await self._call(request, model, sizes[0], next(calls), ends))
            else:
                try:
                    async with asyncio.TaskGroup() as group:
                        tasks = [
                            group.create_task(self._call(request, model, n, next(calls), ends)) for n in sizes
                        ]
                except BaseExceptionGroup as failed:
                    raise failed.exceptions[0] from None
                replies += [task.result() for task in tasks]
            missing = wanted - sum(len(reply.draws) for reply in replies)
        return replies

    def _sizes(self, model: str, count: int) -> list[int]:
        """Return the number of choices of each call; they sum to `count`."""
        size = min(count, self._quirks.get(model, "n") or count)
        return [size] * (count // size) + ([count % size] if count % size else [])

    async def _call(self, request: GenerationRequest, model: str, n: int, call: int, ends: float) -> Reply:
        """Call for n choices, in the first dialect that the server takes.

        The last attempt asks for the request's smaller number of tokens, if there is one: the context may
        have no room for more.
        """
        path, body = build_body(request, self._shape, api=self.api, model=model, n=n, call=call)
        on_api = f"{path} {model}"
        quirk = self._quirks.get(on_api, "logprobs")
        if not request.num_alternatives and quirk:
            body = body | {"top_logprobs": 1} if quirk == 1 else without(body, "logprobs")
        # A server may give one answer with alternatives in a dialect that it refuses for several answers.
        written = "dialect of questions" if request.num_alternatives else "dialect"
        known = self._quirks.get(on_api, written)
        dialects = list(enumerate(DIALECTS))[known:]
        attempts: deque[tuple[int, Body, int | None]] = deque((i, write(body), None) for i, write in dialects)
        if (fewer := request.fallback_max_tokens) is not None:
            attempts.append((known, DIALECTS[known]({**body, "max_tokens": fewer}), fewer))
        refusal: EigencalError | None = None
        has_repeated = False
        while attempts:
            dialect, sent, max_tokens = attempts.popleft()
            if request.num_alternatives and "logprobs" not in sent:
                continue
            try:
                reply = await self._complete(path, sent, request, n, ends)
            except EigencalError as error:
                status = error.extra.get("llm_status")
                if status not in REFUSING:
                    self.failures[error.code] += 1
                    raise
                if status == 500 and not has_repeated:  # it may pass, and have another cause
                    has_repeated = True
                    attempts.appendleft((dialect, sent, max_tokens))
                refusal = refusal or error
                continue
            # Recorded only after success: the server may refuse this call for another reason.
            if dialect != known:
                self._quirks.record(on_api, written, dialect)
            if len(reply.draws) < n:
                self._quirks.record(model, "n", len(reply.draws))
            if "logprobs" in sent and not request.num_alternatives and lacks_logprobs(reply):
                is_last_try = "top_logprobs" in sent or path != PATHS["chat"]
                self._quirks.record(on_api, "logprobs", 2 if is_last_try else 1)
            omitted = tuple(name for name in WITHOUT_EFFECT if name not in sent)
            return replace(reply, model=reply.model or model, omitted=omitted, max_tokens=max_tokens)
        assert refusal is not None
        self.failures[refusal.code] += 1
        raise refusal

    # From a call to a reply

    async def _complete(
        self, path: str, body: Mapping[str, Any], request: GenerationRequest, n: int, ends: float
    ) -> Reply:
        """Send one call of an admitted request.

        The durations of jobs and of questions do not count among those of draws.
        """
        clock = asyncio.get_running_loop().time
        asked_at = clock()
        permit = await self._queue.permit(request.priority, ends)
        queued_s = clock() - asked_at
        max_bytes = max_bytes_of(request.sampling.max_tokens, n)
        try:
            async with asyncio.timeout_at(ends):
                attempt = partial(self._attempt, path, json.dumps(body).encode(), max_bytes)
                reply = await with_retries(attempt, max_retries=MAX_RETRIES, ends=ends)
            if request.priority != Priority.JOB and not request.is_question:
                self._queue.took_s.append(clock() - asked_at - queued_s)
            return replace(reply, queued_s=queued_s)
        except TimeoutError:
            raise DeadlineExceeded("No answer came in time.") from None
        except httpx2.RequestError:
            raise LLMUnavailable("The LLM server broke off its answer.") from None
        finally:
            permit.release()

    async def _attempt(self, path: str, content: bytes, max_bytes: int) -> Reply:
        """Send a call and read its answer. Raises TransientError for failures that are retried."""
        try:
            async with self._connections.stream("POST", endpoint(self._base, path), content) as response:
                if response.status_code != 200:
                    raise await self._refusal(response)
                answer = await read(response, max_bytes)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError):
            raise TransientError(LLMUnavailable("The LLM server cannot be reached.")) from None
        try:
            return read_reply(answer, self._api_key)
        except LLMUnavailable as error:
            raise TransientError(error) from None

    async def _refusal(self, response: httpx2.Response) -> Exception:
        try:
            content = await read(response, REFUSAL_BYTES)
        except LLMBadResponse:
            content = b""  # too long
        status, wait_s = response.status_code, retry_after_s(response)
        error = error_of(status, content, self._api_key, retry_after_s=wait_s)
        return TransientError(error) if isinstance(error, LLMUnavailable) and status in TRY_AGAIN else error


def listed_models(listed: Any) -> list[dict[str, Any]]:
    """Return the models of GET /models: `{"data": [...]}`, `{"models": [...]}` or a list, of names too."""
    if isinstance(listed, dict):
        listed = listed.get("data") or listed.get("models")
    models = listed if isinstance(listed, list) else []
    named = ({"id": model} if isinstance(model, str) else model for model in models)
    return [model for model in named if isinstance(model, dict)]


def _request_key(model: str, api: Api, request: GenerationRequest) -> tuple[str, Api, bool, bool]:
    return model, request.api(api), request.sampling.top_k > 0, request.sampling.top_p < 1
