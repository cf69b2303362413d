"""`TLM`, by the surface of Cleanlab's Trustworthy Language Model (cleanlab-tlm 1.1), on an Eigencal service.

    from eigencal.compat.tlm import TLM

    tlm = TLM()
    print(tlm.prompt("How many legs does a spider have?"))

What is equal and what is not: docs/moving-from-tlm.md.
"""

import warnings
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, cast, overload

import httpx

from eigencal._async.client import AsyncClient
from eigencal._errors import UnexpectedAnswer
from eigencal._progress import told
from eigencal._sync.client import Client
from eigencal.compat._lists import Pair, all_awaited, all_of, pairs_of, text
from eigencal.compat._options import QualityPreset, ValidationError, check_arguments, request_of
from eigencal.compat._results import TLMResponse, TLMScore, explanation, response_of, score_of

__all__ = ["TLM", "QualityPreset", "TLMResponse", "TLMScore", "ValidationError"]


class TLM:
    """Asks an Eigencal service what Cleanlab's TLM is asked; it may be used by several threads.

    A context manager that closes its connections, or call `close`.

    Args:
        quality_preset: How many answers are compared: `base` and `low` are the effort `low`, `medium` is
            `medium`, `high` and `best` are `high`.
        task: `default`; `code_generation` is the same, with a warning; `classification` is refused.
        api_key: The service's key; None: `EIGENCAL_KEY`, or none.
        options: `model`, `max_tokens`, `num_consistency_samples` (answers that are compared) and
            `log=["explanation"]` are honoured; what steers TLM's own judging is ignored with a warning.
        timeout: Seconds that each prompt may take.
        verbose: Whether to show on stderr how far a list is.
        url: Where the service is; None: `EIGENCAL_URL`, or http://127.0.0.1:8000.

    Raises:
        ValidationError: An argument cannot be honoured.
        InvalidSetup: The URL or the key cannot be one.
    """

    def __init__(
        self,
        quality_preset: QualityPreset = "medium",
        *,
        task: str = "default",
        api_key: str | None = None,
        options: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        verbose: bool | None = None,
        url: str | None = None,
    ) -> None:
        if timeout is not None and not timeout > 0:
            raise ValidationError("timeout must be over 0 seconds.")
        self._request = request_of(quality_preset, task, options)
        self._client = Client(url, key=api_key)
        self._key, self._timeout_s, self._verbose = api_key, timeout, bool(verbose)
        # One for all: making one takes longer than a request, and every awaited call has a client of its own.
        self._tls = httpx.create_ssl_context()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; idempotent."""
        self._client.close()

    def get_model_name(self) -> str:
        """Return the model that is asked: the option's, or the first that the LLM server serves.

        Raises:
            UnexpectedAnswer: The LLM server names no model.
        """
        if named := self._request.fields.get("model"):
            return named
        served = self._client.models()
        if not served:
            raise UnexpectedAnswer('The LLM server names no model: give options={"model": ...}.')
        return served[0].id

    @overload
    def prompt(self, prompt: str, /, **kwargs: Any) -> TLMResponse: ...
    @overload
    def prompt(self, prompt: Sequence[str], /, **kwargs: Any) -> list[TLMResponse]: ...
    def prompt(self, prompt: str | Sequence[str], /, **kwargs: Any) -> TLMResponse | list[TLMResponse]:
        """Return the answer to a prompt with its score; of a list, a list in its order.

        Raises:
            EigencalError: There is no answer. In a list this is told in its place instead: `response` and
                `trustworthiness_score` are None, `log` has the `error`, and a warning tells of it.
            ValidationError: The arguments do not fit, or cannot be honoured.
        """
        check_arguments(kwargs)
        if isinstance(prompt, str):
            return self._answer((prompt, None))
        return all_of(self._answer, pairs_of(prompt), told(self._verbose))

    def try_prompt(self, prompt: Sequence[str], /, **kwargs: Any) -> list[TLMResponse]:
        """Do as `prompt` with a list; deprecated by TLM, and here."""
        _deprecated("prompt")
        return self.prompt(prompt, **kwargs)

    @overload
    async def prompt_async(self, prompt: str, /, **kwargs: Any) -> TLMResponse: ...
    @overload
    async def prompt_async(self, prompt: Sequence[str], /, **kwargs: Any) -> list[TLMResponse]: ...
    async def prompt_async(
        self, prompt: str | Sequence[str], /, **kwargs: Any
    ) -> TLMResponse | list[TLMResponse]:
        """Do as `prompt`, awaited."""
        check_arguments(kwargs)
        async with self._awaited() as client:

            async def ask(pair: Pair) -> TLMResponse:
                score = await client.score(pair[0], timeout_s=self._timeout_s, **self._request.fields)
                return response_of(score, explains=self._request.explains)

            if isinstance(prompt, str):
                return await ask((prompt, None))
            return await all_awaited(ask, pairs_of(prompt))

    @overload
    def get_trustworthiness_score(self, prompt: str, response: str, **kwargs: Any) -> TLMScore: ...
    @overload
    def get_trustworthiness_score(
        self, prompt: Sequence[str], response: Sequence[str], **kwargs: Any
    ) -> list[TLMScore]: ...
    def get_trustworthiness_score(
        self, prompt: str | Sequence[str], response: str | Sequence[str], **kwargs: Any
    ) -> TLMScore | list[TLMScore]:
        """Return the score of a response that you have; of lists, a list in their order.

        Raises:
            EigencalError: There is no score; in a list this is told in its place instead, as by `prompt`.
            ValidationError: The arguments do not fit, or cannot be honoured.
        """
        check_arguments(kwargs)
        if isinstance(prompt, str):
            return self._judge((prompt, text(response, "response")))
        return all_of(self._judge, pairs_of(prompt, response, judges=True), told(self._verbose))

    def try_get_trustworthiness_score(
        self, prompt: Sequence[str], response: Sequence[str], **kwargs: Any
    ) -> list[TLMScore]:
        """Do as `get_trustworthiness_score` with lists; deprecated by TLM, and here."""
        _deprecated("get_trustworthiness_score")
        return self.get_trustworthiness_score(prompt, response, **kwargs)

    @overload
    async def get_trustworthiness_score_async(
        self, prompt: str, response: str, **kwargs: Any
    ) -> TLMScore: ...
    @overload
    async def get_trustworthiness_score_async(
        self, prompt: Sequence[str], response: Sequence[str], **kwargs: Any
    ) -> list[TLMScore]: ...
    async def get_trustworthiness_score_async(
        self, prompt: str | Sequence[str], response: str | Sequence[str], **kwargs: Any
    ) -> TLMScore | list[TLMScore]:
        """Do as `get_trustworthiness_score`, awaited."""
        check_arguments(kwargs)
        async with self._awaited() as client:

            async def ask(pair: Pair) -> TLMScore:
                fields = {**self._request.fields, "candidate": pair[1]}
                score = await client.score(pair[0], timeout_s=self._timeout_s, **cast(Any, fields))
                return score_of(score, explains=self._request.explains)

            if isinstance(prompt, str):
                return await ask((prompt, text(response, "response")))
            return await all_awaited(ask, pairs_of(prompt, response, judges=True))

    def get_explanation(
        self, *, prompt: str, tlm_result: TLMResponse | TLMScore, response: str | None = None
    ) -> str:
        """Return in a sentence what the answers say, and put it into the result's `log`.

        Args:
            prompt: The prompt; not used, as the score is known by its id.
            tlm_result: A result of this service, not older than it keeps scores (an hour).
            response: The response; not used.

        Raises:
            NotFound: The score is no longer kept.
            ValidationError: It is not one result of this TLM, or has no score.
        """
        if not isinstance(tlm_result, dict) or "score_id" not in tlm_result:
            raise ValidationError("tlm_result must be one result of this TLM, with its score_id.")
        log = tlm_result.setdefault("log", {})
        if "explanation" not in log:
            if tlm_result["score_id"] is None:
                raise ValidationError("tlm_result has no score to explain.")
            log["explanation"] = explanation(self._client.get_score(tlm_result["score_id"]))
        return str(log["explanation"])

    def _answer(self, pair: Pair) -> TLMResponse:
        score = self._client.score(pair[0], timeout_s=self._timeout_s, **self._request.fields)
        return response_of(score, explains=self._request.explains)

    def _judge(self, pair: Pair) -> TLMScore:
        fields = {**self._request.fields, "candidate": pair[1]}
        score = self._client.score(pair[0], timeout_s=self._timeout_s, **cast(Any, fields))
        return score_of(score, explains=self._request.explains)

    @asynccontextmanager
    async def _awaited(self) -> AsyncIterator[AsyncClient]:
        """Yield a client for this event loop: there may be another for the next call."""
        async with httpx.AsyncClient(verify=self._tls) as http:
            yield AsyncClient(self._client.url, key=self._key, http_client=http)


def _deprecated(name: str) -> None:
    warnings.warn(f"Use {name}().", DeprecationWarning, stacklevel=3)
