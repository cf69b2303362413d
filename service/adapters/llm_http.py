"""Any OpenAI-compatible server behind the port LanguageModel: vLLM above all, others where they differ.

One call asks for all n answers. What differs is learnt from the server's first answers and kept: how many
choices a call brings (some servers ignore n), and which optional parameters it refuses.
"""

import asyncio
from dataclasses import replace
from typing import Any, Literal

import httpx

from service.adapters.llm_client import CompletionClient, Outcome
from service.adapters.llm_errors import refused_parameter
from service.adapters.llm_wire import Choice, WireOptions, build_body
from service.adapters.prompting import PromptShape
from service.adapters.shared_check import SharedCheck
from service.domain.errors import DeadlineExceeded, EigencalError, LLMUnavailable, ModelNotFound
from service.domain.models import Draw, Generation, GenerationRequest, LLMIdentity, Usage

GREEDY_BELOW = 1e-5  # vLLM draws greedily below this, and refuses n > 1 there
CHECK_TIMEOUT_S = 5.0
NO_HEALTH_ROUTE = frozenset({401, 403, 404, 405})


class HttpLanguageModel:
    """Draws answers from a server.

    `base_url` with or without /v1; `model` None or "": the first that the server lists, asked once.
    Deadlines: without `deadline_s` a call is plain, and a server silent for `timeout_s` is DeadlineExceeded;
    with it the answer is streamed, and what has been finished by then is returned. A sampling temperature
    of 0 makes all answers equal: one is drawn and repeated. A seed is hashed per call (see `spread_seed`).
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
            proxies_from_env=proxies_from_env,
            transport=transport,
        )
        self._shape = shape or PromptShape()
        self._model = self._configured_model = model or ""
        self._options = WireOptions(api, logprobs, use_priority)
        self._choices_per_call: dict[str, int] = {}
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
        """Return the identity; its model is "" as long as none is configured and none was learnt."""
        return self._shape.identity(request, model=request.model or self._model, api=self._options.api)

    async def generate(self, request: GenerationRequest) -> Generation:
        """Draw answers; see the port and the class."""
        clock = asyncio.get_running_loop().time
        deadline = None if request.deadline_s is None else clock() + request.deadline_s
        model = request.model or await self._model_before(deadline)
        copies = request.num_samples if request.sampling.temperature < GREEDY_BELOW else 1
        asked = request.num_samples // copies
        outcomes, failure = await self._draw(replace(request, num_samples=asked, model=model), deadline)
        if isinstance(failure, ModelNotFound) and not request.model:
            self._model = (
                self._configured_model
            )  # the server has changed: one that was learnt is asked for again
        return await self._generation(request, model, outcomes, failure, copies)

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

    async def _model_before(self, deadline: float | None) -> str:
        if self._model:
            return self._model
        try:
            async with asyncio.timeout_at(deadline):
                return await self._resolve_model()
        except TimeoutError:
            raise DeadlineExceeded("No answer came before the deadline.") from None

    async def _draw(
        self, request: GenerationRequest, deadline: float | None
    ) -> tuple[list[Outcome], EigencalError | None]:
        """Call until all answers are there or something fails; return the outcomes and the first failure.

        A round whose calls bring fewer choices than asked is followed by one that asks for the rest in
        calls of the size seen: each brings at least one, so this ends.
        """
        outcomes: list[Outcome] = []
        missing, calls = request.num_samples, 0
        while missing > 0:
            sizes = self._sizes(request.model or "", missing)
            done = await asyncio.gather(
                *(self._call(request, n, calls + i, deadline) for i, n in enumerate(sizes)),
                return_exceptions=True,
            )
            outcomes += [item for item in done if isinstance(item, Outcome)]
            for item in done:
                if isinstance(item, EigencalError):
                    return outcomes, item
                if isinstance(item, BaseException):
                    raise item
            if any(outcome.missing_reason for outcome in outcomes):
                break
            missing = request.num_samples - sum(len(outcome.completion.choices) for outcome in outcomes)
            calls += len(sizes)
        return outcomes, None

    def _sizes(self, model: str, count: int) -> list[int]:
        size = min(count, self._choices_per_call.get(model, count))
        return [size] * (count // size) + ([count % size] if count % size else [])

    async def _call(self, request: GenerationRequest, n: int, call: int, deadline: float | None) -> Outcome:
        path, body = build_body(
            request,
            self._shape,
            self._options,
            model=request.model or "",
            n=n,
            call=call,
            stream=deadline is not None,
        )
        try:
            outcome = await self._client.complete(path, body, deadline)
        except EigencalError as error:
            name = refused_parameter(error, body)
            if name is None:
                raise
            return await self._without(name, request, n, call, deadline)
        if outcome.missing_reason is None and len(outcome.completion.choices) < n:
            self._choices_per_call[request.model or ""] = len(outcome.completion.choices)
        return outcome

    async def _without(
        self, name: str, request: GenerationRequest, n: int, call: int, deadline: float | None
    ) -> Outcome:
        """Call again without what the server refused, and remember it."""
        if name != "n":
            self._options = replace(self._options, omitted=self._options.omitted | {name})
            return await self._call(request, n, call, deadline)
        outcome = await self._call(request, 1, call, deadline)
        # Only now: an error that merely names n must not cost all later requests n calls each.
        self._choices_per_call[request.model or ""] = 1
        return outcome

    async def _generation(
        self,
        request: GenerationRequest,
        model: str,
        outcomes: list[Outcome],
        failure: EigencalError | None,
        copies: int,
    ) -> Generation:
        choices = [choice for outcome in outcomes for choice in outcome.completion.choices]
        if not choices:
            raise failure or LLMUnavailable("The LLM server brought no answer.")
        draws = (await self._read(choices))[: request.num_samples] * copies
        told = next((o.completion.model for o in outcomes if o.completion.model), model)
        reasons = {outcome.missing_reason for outcome in outcomes} | _reason_of(failure)
        whole = len(draws) >= request.num_samples
        reason: Literal["deadline", "error"] = "deadline" if "deadline" in reasons else "error"
        return Generation(
            draws=draws,
            requested=request.num_samples,
            model=told,
            usage=_total_usage(outcomes),
            missing_reason=None if whole else reason,
            queued_s=outcomes[0].queued_s,
        )

    async def _read(self, choices: list[Choice]) -> tuple[Draw, ...]:
        answers = await self._shape.answers([choice.output for choice in choices])
        return tuple(Draw(a, c.truncated, c.logprob) for a, c in zip(answers, choices, strict=True))


def _reason_of(failure: EigencalError | None) -> set[str | None]:
    return {"deadline" if isinstance(failure, DeadlineExceeded) else "error"} if failure else set()


def _total_usage(outcomes: list[Outcome]) -> Usage:
    return Usage(
        sum(outcome.completion.usage.prompt_tokens for outcome in outcomes),
        sum(outcome.completion.usage.completion_tokens for outcome in outcomes),
    )


def _first_model(listed: dict[str, Any] | None) -> str:
    """Return the id of the first model of an answer of /v1/models; "" when there is none."""
    try:
        return str((listed or {})["data"][0]["id"])
    except (KeyError, IndexError, TypeError):
        return ""
