"""The client of an OpenAI-compatible LLM server, and what that server was seen to do, seen twice."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import httpx

from service.errors import DeadlineExceeded, EigencalError, LLMBadResponse, LLMUnavailable, ModelNotFound
from service.llm.admission import QueuedRequest
from service.llm.client import CallResult, CompletionClient
from service.llm.port import Draw, Generation, GenerationRequest, LLMIdentity, Usage
from service.llm.prompting import PromptShape, api_of
from service.llm.wire import (
    DECIDES_ANSWERS,
    OPTIONAL,
    ZERO_LOGPROBS,
    Choice,
    WireOptions,
    build_body,
    drawn,
    model_name,
    refused_parameter,
)
from service.lru import LRU
from service.remote import SharedCheck

KEPT_S = 600.0  # then the full form is tried again: servers are updated, and errors pass
MAX_KEPT = 1024  # habits; callers name models, and there may be any number of them
CHOICES = "n"


class ServerQuirks:
    """How many choices a call brings, and which parameters are refused, for each model.

    One short or refused call may be a hiccup. So something is believed once two calls showed it, the second
    begun after the first had ended, with none in between that showed the opposite; and for `kept_s` only.
    """

    def __init__(self, *, kept_s: float = KEPT_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._kept_s = kept_s
        self.clock = clock
        self._seen: LRU[tuple[str, str], tuple[float, int]] = LRU(MAX_KEPT)
        self._believed: LRU[tuple[str, str], tuple[float, int]] = LRU(MAX_KEPT)

    def choices(self, model: str) -> int | None:
        """Return how many choices a call brings at most; None: as many as are asked for, as far as known."""
        return self._known(model, CHOICES)

    def omitted(self, model: str, names: Collection[str]) -> frozenset[str]:
        """Return those of the parameters that the server is known to refuse."""
        return frozenset(name for name in names if self._known(model, name) is not None)

    def record_choices(self, model: str, *, asked: int, brought: int, began: float) -> None:
        """Take note of a whole reply with no choice given up. `began`: when it was asked for, by `clock`."""
        if brought < asked:
            self._saw(model, CHOICES, brought, began)
        elif (seen := self._seen.get((model, CHOICES))) and brought > seen[1]:
            self._seen.pop((model, CHOICES))

    def record_parameters(
        self, model: str, *, refused: Collection[str], taken: Collection[str], began: float
    ) -> None:
        """Take note of a call that succeeded: without those refused, and with those taken."""
        for name in refused:
            self._saw(model, name, 0, began)
        for name in taken:
            self._seen.pop((model, name))

    def _saw(self, model: str, name: str, value: int, began: float) -> None:
        now, first = self.clock(), self._seen.get((model, name))
        if first is None or now - first[0] > self._kept_s:
            self._seen.put((model, name), (now, value))
        elif began >= first[0]:
            self._believed.put((model, name), (now, max(value, first[1])))
            self._seen.pop((model, name))

    def _known(self, model: str, name: str) -> int | None:
        believed = self._believed.get((model, name))
        if believed is None or self.clock() - believed[0] > self._kept_s:
            return None
        return believed[1]


# Any OpenAI-compatible server behind the port LanguageModel: vLLM above all, others where they differ.
#
# One call asks for all n answers. What differs is learnt from the server's answers and kept for a while (see
# `ServerQuirks`): how many choices a call brings (some servers ignore n), and which parameters it refuses.

GREEDY_BELOW = 1e-5  # vLLM draws greedily below this, and refuses n > 1 there
CHECK_TIMEOUT_S = 5.0
NO_HEALTH_ROUTE = frozenset({401, 403, 404, 405})  # of gateways, say: the list of models tells instead
MAX_MODELS = 256  # whose answering model is remembered: callers name them


@dataclass(frozen=True, slots=True)
class _Reply:
    """What one call brought. `asked`: choices. `model`: that answered. `omitted`: see `LLMIdentity`."""

    outcome: CallResult
    asked: int
    model: str
    omitted: tuple[str, ...]

    @property
    def brought(self) -> int:
        """Return the number of choices."""
        return len(self.outcome.completion.choices)

    def is_short(self) -> bool:
        """Tell whether a whole reply holds fewer choices than were asked for."""
        return self.outcome.missing_reason is None and self.brought < self.asked


class HttpLanguageModel:
    """Draws answers from a server.

    `base_url` with or without /v1; `model` None or "": the first that the server lists, asked once.
    Deadlines: without `deadline_s` a call is plain, and one without an answer after `timeout_s` (waiting and
    retries included) is DeadlineExceeded; with it the answer is streamed, and what has been finished by then
    is returned. Past `max_waiting` queued calls a request is Overloaded; those of jobs (`priority` above 0)
    are not. A sampling temperature of 0 makes all answers equal: one is drawn and repeated. A seed is hashed
    per call (see `spread_seed`). Answers of two models are never mixed: that is a LLMBadResponse.
    Connect errors, 429, 502, 503 and 504 are tried again `max_retries` times, Retry-After up to 5 s honoured.
    `proxies_from_env`: go through the proxies that HTTP_PROXY and the like name.
    """

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        api: Literal["chat", "completions"] = "chat",
        api_key: str = "",
        shape: PromptShape | None = None,
        timeout_s: float = 120.0,
        connect_timeout_s: float = 5.0,
        max_retries: int = 3,
        max_concurrency: int = 64,
        max_waiting: int = 16,
        use_priority: bool = False,
        logprobs: bool = False,
        proxies_from_env: bool = False,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._client = CompletionClient(
            base_url,
            api_key=api_key,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            max_retries=max_retries,
            max_concurrency=max_concurrency,
            max_waiting=max_waiting,
            proxies_from_env=proxies_from_env,
            transport=transport,
        )
        self._shape = shape or PromptShape()
        self._model = self._configured_model = model or ""
        self._options = WireOptions(api, logprobs, use_priority)
        self._habits = ServerQuirks()
        self._drawn_by: LRU[str, tuple[str, tuple[str, ...]]] = LRU(MAX_MODELS)
        no_answer = LLMUnavailable("The LLM server does not answer in time.")
        self._check = SharedCheck(self._ask_health, longest_s=2 * CHECK_TIMEOUT_S, too_late=no_answer)

    async def start(self) -> None:
        """Ask for the model's name when none is configured; a server that is not up yet is asked later."""
        try:
            await self._resolve_model()
        except EigencalError:
            return

    async def stop(self) -> None:
        """Close all connections."""
        await self._check.stop()
        await self._client.close()

    def identity(self, request: GenerationRequest) -> LLMIdentity:
        """Return the identity: of the last answers to a request for this model, else of what is asked for.

        The model is "" as long as none is configured and none was learnt.
        """
        asked = request.model or self._model
        expected = self._shape.identity(request, model=asked, api=self._options.api)
        model, omitted = self._drawn_by.get(asked) or ("", ())
        if not model:
            return replace(expected, answered=False)
        return replace(expected, model=model, omitted=() if request.sampling.top_k else omitted)

    async def generate(self, request: GenerationRequest) -> Generation:
        """Draw answers; see the port and the class."""
        copies = request.num_samples if request.sampling.temperature < GREEDY_BELOW else 1
        asked = request.num_samples // copies
        live = request.priority == 0
        calls = len(self._sizes(request.model or self._model, asked))
        with self._client.admitted(deadline_s=request.deadline_s, calls=calls, live=live) as queued:
            model = request.model or await self._model_before(queued)
            wanted = replace(request, num_samples=asked, model=model)
            replies, failure = await self._draw(wanted, queued)
        if isinstance(failure, ModelNotFound) and not request.model:
            # The server has changed: a model that was learnt is asked for again.
            self._model = self._configured_model
        generation = await self._generation(request, replies, failure, copies)
        self._learn(model, generation, request)
        return generation

    def _learn(self, asked: str, generation: Generation, request: GenerationRequest) -> None:
        """Remember who answers: a server that lists one name may answer with another."""
        _, omitted = self._drawn_by.get(asked) or ("", ())
        if not request.sampling.top_k:
            omitted = generation.omitted
        self._drawn_by.put(asked, (generation.model, omitted))

    async def check(self) -> None:
        """Ask the server's health, at most once a second; raises LLMUnavailable."""
        await self._check()

    async def _ask_health(self) -> None:
        root = self._client.base_url.removesuffix("/v1")
        status, _ = await self._client.get(f"{root}/health", CHECK_TIMEOUT_S)
        if status in NO_HEALTH_ROUTE:
            status, _ = await self._client.get(f"{self._client.base_url}/models", CHECK_TIMEOUT_S)
        if status != 200:
            raise LLMUnavailable("The LLM server says that it is not well.")
        await self._resolve_model()

    async def _resolve_model(self) -> str:
        if not self._model:
            status, listed = await self._client.get(f"{self._client.base_url}/models", CHECK_TIMEOUT_S)
            self._model = _first_model(listed) if status == 200 else ""
        if not self._model:
            raise LLMUnavailable("The LLM server lists no model.")
        return self._model

    async def _model_before(self, queued: QueuedRequest) -> str:
        if self._model:
            return self._model
        try:
            async with asyncio.timeout_at(queued.ends):
                return await self._resolve_model()
        except TimeoutError:
            raise queued.expired() from None

    async def _draw(
        self, request: GenerationRequest, queued: QueuedRequest
    ) -> tuple[list[_Reply], EigencalError | None]:
        """Call until all answers are there or something fails; return the replies and the first failure.

        A round that brings fewer choices than asked is followed by one that asks for the rest in the same
        way: it may have been a hiccup. After a second such round the rest is asked in calls of the size seen:
        each brings at least one, so this ends.
        """
        model, replies = request.model or "", list[_Reply]()
        missing, calls, seen = request.num_samples, 0, 0
        while missing > 0:
            sizes = self._sizes(model, missing, seen)
            done = await asyncio.gather(
                *(self._call(request, n, calls + i, queued) for i, n in enumerate(sizes)),
                return_exceptions=True,  # the answers that came count, whatever befell the other calls
            )
            came = [item for item in done if isinstance(item, _Reply)]
            seen = _size_seen(replies, came)
            replies += came
            for item in done:
                if isinstance(item, EigencalError):
                    return replies, item
                if isinstance(item, BaseException):
                    raise item
            if any(reply.outcome.missing_reason for reply in replies):
                break
            missing = request.num_samples - sum(reply.brought for reply in replies)
            calls += len(sizes)
        return replies, None

    def _sizes(self, model: str, count: int, seen: int = 0) -> list[int]:
        """Return the choices to ask for in each call. `seen`: how many this request's calls bring, if > 0."""
        size = min(count, self._habits.choices(model) or seen or count)
        return [size] * (count // size) + ([count % size] if count % size else [])

    async def _call(self, request: GenerationRequest, n: int, call: int, queued: QueuedRequest) -> _Reply:
        """Call for n choices, without what the server refuses and can be left out.

        Log-probabilities that are asked for and not told count as refused: they cost time for nothing.
        """
        model, began = request.model or "", self._habits.clock()
        # A server may take on one API what it refuses on the other.
        refused_of = f"{api_of(request, self._options.api)} {model}"
        refused: set[str] = set()
        while True:
            omitted = self._habits.omitted(refused_of, OPTIONAL | {ZERO_LOGPROBS}) | refused - {"n"}
            path, body = build_body(
                request,
                self._shape,
                replace(self._options, omitted=omitted),
                model=model,
                n=1 if "n" in refused else n,
                call=call,
                stream=request.deadline_s is not None,
            )
            try:
                outcome = await self._client.complete(path, body, queued)
                break
            except EigencalError as error:
                name = refused_parameter(error, body)
                if name is None:
                    raise
                refused.add(name)
        # Only now: an error that merely names a parameter must not cost later requests theirs.
        untold = _untold(outcome, body)
        self._habits.record_parameters(
            refused_of,
            refused=(refused - {"n"}) | untold,
            taken=(OPTIONAL & body.keys() | {ZERO_LOGPROBS}) - untold,
            began=began,
        )
        not_sent = tuple(name for name in DECIDES_ANSWERS if name not in body)
        reply = _Reply(outcome, n, outcome.completion.model or model, not_sent)
        if outcome.missing_reason is None and not outcome.completion.given_up:
            self._habits.record_choices(model, asked=n, brought=reply.brought, began=began)
        return reply

    async def _generation(
        self,
        request: GenerationRequest,
        replies: list[_Reply],
        failure: EigencalError | None,
        copies: int,
    ) -> Generation:
        choices = [choice for reply in replies for choice in reply.outcome.completion.choices]
        if not choices:
            raise failure or LLMUnavailable("The LLM server brought no answer.")
        if _is_mixed(replies):
            raise LLMBadResponse("The LLM server answered one request with two models, or in two ways.")
        draws = (await self._read(choices))[: request.num_samples] * copies
        reasons = {reply.outcome.missing_reason for reply in replies} | _reason_of(failure)
        whole = len(draws) >= request.num_samples
        reason: Literal["deadline", "error"] = "deadline" if "deadline" in reasons else "error"
        return Generation(
            draws=draws,
            requested=request.num_samples,
            model=replies[0].model,
            usage=_total_usage(replies),
            missing_reason=None if whole else reason,
            queued_s=replies[0].outcome.queued_s,
            omitted=replies[0].omitted,
        )

    async def _read(self, choices: list[Choice]) -> tuple[Draw, ...]:
        answers = await self._shape.answers([choice.output for choice in choices])
        return tuple(drawn(self._shape, a, c) for a, c in zip(answers, choices, strict=True))


def _untold(outcome: CallResult, body: Mapping[str, Any]) -> set[str]:
    """Return what brought nothing: log-probabilities that were asked for, and not one was told.

    A reply without any text is no sign: some servers leave out the token that ends an answer.
    """
    choices = outcome.completion.choices
    asked = "logprobs" in body and outcome.missing_reason is None
    if not asked or any(c.logprob is not None for c in choices) or not any(c.output for c in choices):
        return set()
    return {"logprobs"} if body["logprobs"] else {ZERO_LOGPROBS}


def _reason_of(failure: EigencalError | None) -> set[str | None]:
    return {"deadline" if isinstance(failure, DeadlineExceeded) else "error"} if failure else set()


def _is_mixed(replies: Sequence[_Reply]) -> bool:
    """Tell whether the answers come from two distributions: two models, or two ways to sample."""
    return len({(reply.model, reply.omitted) for reply in replies}) > 1


def _size_seen(before: Sequence[_Reply], came: Sequence[_Reply]) -> int:
    """Return the most choices in a short reply once two rounds brought such; 0 until then."""
    if not any(reply.is_short() for reply in before):
        return 0
    return max((reply.brought for reply in [*before, *came] if reply.is_short()), default=0)


def _total_usage(replies: Sequence[_Reply]) -> Usage:
    usages = [reply.outcome.completion.usage for reply in replies]
    return Usage(sum(u.prompt_tokens for u in usages), sum(u.completion_tokens for u in usages))


def _first_model(listed: dict[str, Any] | None) -> str:
    """Return the id of the first model of an answer of /v1/models; "" when there is none."""
    try:
        return model_name((listed or {})["data"][0]["id"])
    except (KeyError, IndexError, TypeError, ValueError):
        return ""
