"""The client of OpenAI-compatible LLM servers: vLLM first, and others where they differ."""

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import httpx2

from service.addresses import api_base, endpoint
from service.errors import DeadlineExceeded, EigencalError, LLMBadResponse, LLMUnavailable, ModelNotFound
from service.llm.admission import AdmissionQueue
from service.llm.port import (
    GREEDY_BELOW,
    Api,
    Draw,
    Generation,
    GenerationRequest,
    LLMIdentity,
    Priority,
    PromptShape,
    Usage,
)
from service.llm.sse import events, find_events
from service.llm.wire import (
    OPTIONAL,
    PATHS,
    REFUSAL_BYTES,
    WITHOUT_EFFECT,
    Reply,
    ReplyReader,
    build_body,
    error_of,
    has_no_room,
    max_bytes_of,
    model_name,
    pieces,
    read,
    refused_parameter,
    refuses_stream,
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
END_S = 0.5  # from `[DONE]` to the end of a stream
MAX_QUIRKS = 1024  # bounded, because callers may name any number of models


class ServerQuirks:
    """Observed limits of a server, by model.

    `name`: a parameter that the server refused or ignored. The value of `n` is the number of choices that a
    call returned.
    """

    def __init__(self) -> None:
        self._seen: LRU[tuple[str, str], tuple[float, int]] = LRU(MAX_QUIRKS)

    def record(self, model: str, name: str, value: int = 0) -> None:
        """Remember a quirk."""
        self._seen.put((model, name), (time.monotonic(), value))

    def get(self, model: str, name: str) -> int | None:
        """Return the value of a quirk; None if unknown or too old, so that the full call is tried."""
        seen = self._seen.get((model, name))
        return None if seen is None or time.monotonic() - seen[0] > QUIRK_KEPT_S else seen[1]


class HttpLanguageModel:
    """Draws answers from a server.

    `base_url`: with or without /v1. `model`: None or "" for the first model that the server lists.
    One call asks for all answers, unless the server was seen to return fewer (see `ServerQuirks`). Answers of
    two models are never mixed; they raise LLMBadResponse. Calls wait for a permit of `queue`, which raises
    Overloaded if it has no room for a request.
    At a sampling temperature of 0 all answers are equal, so one is drawn and repeated.
    Without `deadline_s`, a call is not streamed and raises DeadlineExceeded after `timeout_s` seconds,
    including waiting and retries. With `deadline_s`, the answer is streamed, and the choices that have ended
    by then are returned. `on_answer` also uses streaming; with an answer
    regex, it is called only when all answers are complete.
    Connection errors and the status codes in `TRY_AGAIN` are retried `MAX_RETRIES` times, after a Retry-After
    of at most 5 s. `proxies_from_env`: use the proxies of HTTP_PROXY and similar variables.
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
        use_priority: bool = False,
        proxies_from_env: bool = False,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._base = api_base(base_url, "EIGENCAL_LLM_URL")
        self._model = self._configured_model = model or ""
        self._api = api
        self._api_key = api_key
        self._shape = shape or PromptShape()
        self._timeout_s = timeout_s
        self._build_body = partial(build_body, shape=self._shape, api=api, use_priority=use_priority)
        self._queue = queue or AdmissionQueue(64, 16)
        self.failures = Counter[str]()  # number of failed calls by error code
        self._quirks = ServerQuirks()
        # The answering model and the omitted parameters, by key of the request (see `_request_key`).
        self._answered_by: LRU[tuple[str, bool, bool], tuple[str, tuple[str, ...]]] = LRU(MAX_QUIRKS)
        self._check = HealthProbe(self._ask_health)
        self._connections = Connections(
            self._base, api_key=api_key, proxies_from_env=proxies_from_env, transport=transport
        )

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
        expected = self._shape.identity(request, model=requested, api=self._api)
        answered_by = self._answered_by.get(_request_key(requested, request))
        if answered_by is None:
            return replace(expected, answered=False)
        model, omitted = answered_by
        return replace(expected, model=model, omitted=omitted)

    async def generate(self, request: GenerationRequest) -> Generation:
        """Draw `request.num_samples` answers, or fewer (at least one) if some fail or the deadline passes.

        Cancelling the task frees the server. Raises LLMUnavailable, LLMError, LLMBadResponse, ModelNotFound,
        DeadlineExceeded, Overloaded.
        """
        is_greedy = request.sampling.temperature < GREEDY_BELOW
        wanted = 1 if is_greedy else request.num_samples
        deadline_s = self._timeout_s if request.deadline_s is None else request.deadline_s
        ends = asyncio.get_running_loop().time() + min(deadline_s, self._timeout_s)
        sizes = self._sizes(_with_mode(request, request.model or self._model), wanted)
        with self._queue.admitted(request.priority, len(sizes)):
            model = request.model or await self._resolve_model()
            replies, failures = await self._draw(request, model, wanted, ends)
        if not request.model and any(isinstance(failure, ModelNotFound) for failure in failures):
            # The server has changed: ask for the name of its model again.
            self._model = self._configured_model
        if not replies:
            raise failures[0]
        answered_by = {(reply.model, reply.omitted) for reply in replies}
        if len(answered_by) > 1:
            raise LLMBadResponse("The LLM server answered one request with two models, or in two ways.")
        [(answering, omitted)] = answered_by
        self._answered_by.put(_request_key(model, request), (answering, omitted))
        outputs = [draw for reply in replies for draw in reply.draws][:wanted]
        draws = await self._shape.read_off_loop(outputs)
        if request.on_answer is not None and self._shape.answer_regex:
            for draw in draws:
                request.on_answer(draw.text)
        is_late = any(isinstance(failure, DeadlineExceeded) for failure in failures)
        return Generation(
            draws=draws * request.num_samples if is_greedy else draws,
            requested=request.num_samples,
            model=answering,
            usage=Usage(
                sum(reply.usage.prompt_tokens for reply in replies),
                sum(reply.usage.completion_tokens for reply in replies),
            ),
            missing_reason=None if len(draws) == wanted else "deadline" if is_late else "error",
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

    async def _draw(
        self, request: GenerationRequest, model: str, wanted: int, ends: float
    ) -> tuple[list[Reply], list[EigencalError]]:
        """Call until all answers are there or a call fails; return the replies and the failures.

        If a round returns too few choices, the next round asks for the rest.
        """
        replies, failures = list[Reply](), list[EigencalError]()
        calls, missing = itertools.count(), wanted
        while missing > 0 and not failures:
            outcomes = await asyncio.gather(
                *(
                    self._call(request, model, n, next(calls), ends)
                    for n in self._sizes(_with_mode(request, model), missing)
                ),
                return_exceptions=True,  # answers count even if other calls fail
            )
            for outcome in outcomes:
                if isinstance(outcome, Reply):
                    replies.append(outcome)
                    missing -= len(outcome.draws)
                    failures += [outcome.failure] if outcome.failure else []
                elif isinstance(outcome, EigencalError):
                    failures.append(outcome)
                else:
                    raise outcome
        return replies, failures

    def _sizes(self, model: str, count: int) -> list[int]:
        """Return the number of choices of each call; they sum to `count`."""
        size = min(count, self._quirks.get(model, "n") or count)
        return [size] * (count // size) + ([count % size] if count % size else [])

    async def _call(self, request: GenerationRequest, model: str, n: int, call: int, ends: float) -> Reply:
        """Call for n choices, without the optional parameters that the server refuses."""
        quirks = self._quirks
        # A server may accept a parameter in one API and refuse it in the other.
        in_mode = _with_mode(request, model)
        on_api = f"{request.api(self._api)} {in_mode}"
        refused: set[str] = set()
        max_tokens: int | None = None
        while True:
            quirky = {name for name in (*OPTIONAL, "max_tokens") if quirks.get(on_api, name) is not None}
            omitted = refused | quirky
            size = 1 if "n" in refused else n
            path, body = self._build_body(request, model=model, n=size, call=call, omitted=omitted - {"n"})
            if "logprobs" in body and not request.num_alternatives and quirks.get(on_api, "top_logprobs"):
                body["top_logprobs"] = 1
            try:
                reply = await self._complete(path, body, request, ends)
                is_mixed = reply.is_unnumbered and reply.failure is None and len(reply.draws) < size
                if not is_mixed:
                    break
                refused.add("n")
            except EigencalError as error:
                if max_tokens is None and request.fallback_max_tokens and has_no_room(error):
                    max_tokens = request.fallback_max_tokens
                    request = replace(request, sampling=replace(request.sampling, max_tokens=max_tokens))
                    continue
                name = refused_parameter(error, body)
                may_be_whole = request.deadline_s is None and request.on_answer is not None
                if name is None and may_be_whole and refuses_stream(error):
                    request = replace(request, on_answer=None)
                    continue
                # Only requests without alternatives can omit log-probabilities.
                if name is None or (name == "logprobs" and request.num_alternatives):
                    raise
                refused.add(name)
        # Recorded only after success, because an error may name a parameter that is not its cause.
        for name in refused - {"n"}:
            quirks.record(on_api, name)
        if reply.failure is None:
            if len(reply.draws) < n:
                quirks.record(in_mode, "n", len(reply.draws))
            # Log-probabilities that the server never returns are not requested again. Some servers (lmdeploy)
            # return them only with alternatives. Replies without text do not count, because some servers
            # omit the end token.
            expects_logprobs = "logprobs" in body and not request.num_alternatives
            if expects_logprobs and not any(
                draw.logprob is not None or draw.logprobs_of_other_text or not draw.text
                for draw in reply.draws
            ):
                is_last_try = "top_logprobs" in body or path != PATHS["chat"]
                quirks.record(on_api, "logprobs" if is_last_try else "top_logprobs", 1)
        left_out = tuple(name for name in WITHOUT_EFFECT if name not in body)
        return replace(reply, model=reply.model or model, omitted=left_out, max_tokens=max_tokens)

    # From a call to a reply

    async def _complete(
        self, path: str, body: dict[str, Any], request: GenerationRequest, ends: float
    ) -> Reply:
        """Send one call of an admitted request. Of a stream that fails, the choices that ended are returned.

        The durations of jobs, and of short calls for alternatives, do not count among those of draws.
        """
        clock = asyncio.get_running_loop().time
        asked_at, reader = clock(), ReplyReader(self._api_key, self._preview(request.on_answer))
        failure: EigencalError | None = None
        permit = await self._queue.permit(request.priority, ends)
        queued_s = clock() - asked_at
        try:
            async with asyncio.timeout_at(ends):
                attempt = partial(self._attempt, path, body, reader)
                await with_retries(attempt, max_retries=MAX_RETRIES, ends=ends)
            if request.priority != Priority.JOB and not request.num_alternatives:
                self._queue.took_s.append(clock() - asked_at - queued_s)
        except TimeoutError:
            failure = DeadlineExceeded("No answer came in time.")
        except httpx2.RequestError:
            failure = LLMUnavailable("The LLM server broke off its answer.")
        except EigencalError as error:
            failure = error
        finally:
            permit.release()
        reply = reader.reply()
        if not reply.draws and failure is None:
            failure = LLMBadResponse("The LLM server's answer has no choices.")
        if failure is not None:
            self.failures[failure.code] += 1
            if not reply.draws:
                raise failure
        return replace(reply, failure=failure, queued_s=queued_s)

    def _preview(self, on_answer: Callable[[str], None] | None) -> Callable[[str], None] | None:
        """Return a call for the raw text of an ended choice; None with a regex, which may block the loop."""
        if on_answer is None or self._shape.answer_regex:
            return None
        return lambda text: on_answer(self._shape.read([Draw(text)])[0].text)

    async def _attempt(self, path: str, body: dict[str, Any], reader: ReplyReader) -> None:
        """Send a call and read its answer. Raises TransientError for failures that are retried."""
        url, sent = endpoint(self._base, path), json.dumps(body).encode()
        try:
            async with self._connections.stream("POST", url, sent) as response:
                if response.status_code != 200:
                    raise await self._refusal(response)
                content_type = response.headers.get("content-type", "")
                max_bytes, streams = max_bytes_of(body), bool(body.get("stream"))
                is_stream, content = await find_events(
                    content_type, pieces(response, max_bytes), stream_requested=streams
                )
                if is_stream:
                    async for event in events(content, max_bytes):
                        reader.feed(event)
                        if reader.done:
                            await _read_end(content)
                            break
                    if not reader.is_whole:
                        raise LLMUnavailable("The LLM server broke off its answer.")
                else:
                    whole = b"".join([piece async for piece in content])
                    try:
                        reader.feed_whole(whole)
                    except LLMUnavailable as error:
                        raise TransientError(error) from None
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError):
            raise TransientError(LLMUnavailable("The LLM server cannot be reached.")) from None

    async def _refusal(self, response: httpx2.Response) -> Exception:
        try:
            content = await read(response, REFUSAL_BYTES)
        except LLMBadResponse:
            content = b""  # too long
        status, wait_s = response.status_code, retry_after_s(response)
        error = error_of(status, content, self._api_key, retry_after_s=wait_s)
        return TransientError(error) if isinstance(error, LLMUnavailable) and status in TRY_AGAIN else error


async def _read_end(content: AsyncIterator[bytes]) -> None:
    """Read what follows `[DONE]`, so that the connection can be used again, unless it does not end."""
    with suppress(TimeoutError, httpx2.TransportError):
        async with asyncio.timeout(END_S):
            async for _ in content:
                pass


def listed_models(listed: Any) -> list[dict[str, Any]]:
    """Return the models of GET /models: `{"data": [...]}`, `{"models": [...]}` or a list, of names too."""
    if isinstance(listed, dict):
        listed = listed.get("data") or listed.get("models")
    models = listed if isinstance(listed, list) else []
    named = ({"id": model} if isinstance(model, str) else model for model in models)
    return [model for model in named if isinstance(model, dict)]


def _with_mode(request: GenerationRequest, model: str) -> str:
    """Return the key of what was learned about the server. It may return more answers without streaming."""
    return f"{model} streamed" if request.is_streamed else model


def _request_key(model: str, request: GenerationRequest) -> tuple[str, bool, bool]:
    return model, request.sampling.top_k > 0, request.sampling.top_p < 1
