"""The sampling stage: draw what is missing, keep each row as soon as it is there."""

import asyncio
import logging
from collections.abc import Hashable, Sequence
from dataclasses import replace

from service.domain.errors import EigencalError, LLMError
from service.domain.jobs.model import DevRow
from service.domain.jobs.progress import Progress
from service.domain.jobs.setup import check_same
from service.domain.jobs.store import ClaimedJob, JobStore, LeaseLostError, StoredRow
from service.domain.jobs.waiting import LiveFirst, Patience
from service.domain.models import (
    Draw,
    EmbedderIdentity,
    Fingerprint,
    Generation,
    GenerationRequest,
    service_fingerprint,
)
from service.domain.outcomes import usable
from service.domain.ports import LanguageModel
from service.domain.serving import Serving

logger = logging.getLogger(__name__)

LOW_PRIORITY = 10
# Statuses by which a server refuses a single request, and how many such mean that it refuses all.
REFUSALS = frozenset({400, 413, 422})
REFUSED_AT_FIRST = 10
DRAWN_AGAIN = 2  # times the answers asked for: so many are drawn at most where some hold no text


def row_request(serving: Serving, row: DevRow, num_samples: int) -> GenerationRequest:
    """Return the request for so many answers to a row; live scoring goes before it."""
    prompt = (row.prompt or "") if row.messages is None else None
    return serving.request(
        prompt=prompt, messages=row.messages, num_samples=num_samples, priority=LOW_PRIORITY
    )


class Drawer:
    """Draws answers for the rows of a job, at most `slots` requests at once, live scoring first."""

    def __init__(
        self,
        llm: LanguageModel,
        jobs: JobStore,
        serving: Serving,
        *,
        slots: int = 1,
        live_first: LiveFirst | None = None,
        patience: Patience | None = None,
    ) -> None:
        if slots < 1:
            raise ValueError("drawing needs at least one slot")
        self._llm = llm
        self.jobs = jobs
        self.serving = serving
        self._slots = slots
        self._free = asyncio.Semaphore(slots)  # shared by jobs that run at the same time
        self._live_first = live_first or LiveFirst()
        self._patience = patience or Patience()

    def fingerprint(
        self, row: DevRow, embedder: EmbedderIdentity, drawn: Generation | None = None
    ) -> Fingerprint:
        """Return what answers to this row were drawn with; without them, what they would be now."""
        request = row_request(self.serving, row, 1)
        identity = self._llm.identity(request)
        return service_fingerprint(identity.of(drawn) if drawn else identity, request.sampling, embedder)

    def way(self, row: DevRow) -> Hashable:
        """Return the same value for rows that are drawn alike; it is known before the model is."""
        request = row_request(self.serving, row, 1)
        return replace(self._llm.identity(request), model=""), request.sampling

    async def learn_model(self, row: DevRow, progress: Progress) -> None:
        """Make the model that answers known, which takes one answer where none has been drawn yet."""
        request = row_request(self.serving, row, 1)
        if not self._llm.identity(request).answered:
            await self._patience.keep_trying(lambda: self._llm.generate(request), progress.note)

    async def draw(self, job: ClaimedJob, embedder: EmbedderIdentity, progress: Progress) -> None:
        """Draw until every row has all of its answers. Raises LeaseLostError, and what will not pass."""
        # Asked for anew: a run of the same claim that the store broke off may have stored it.
        bound = await self.jobs.fingerprint(job.lease.job_id)
        run = _Run(self, replace(job, fingerprint=bound), embedder, progress)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._slots):
                    group.create_task(run.work())
        except* (EigencalError, LeaseLostError) as errors:
            raise _first(errors) from None
        await run.leave_refused()

    async def ask(self, request: GenerationRequest, progress: Progress) -> Generation:
        """Return answers, at least one, once it is our turn and the server is there."""

        async def in_turn() -> Generation:
            async with self._free, self._live_first.turn():
                return await self._llm.generate(request)

        return await self._patience.keep_trying(in_turn, progress.note)


class _Run:
    """One run of the sampling stage: workers that share the rows and the fingerprint."""

    def __init__(
        self, drawer: Drawer, job: ClaimedJob, embedder: EmbedderIdentity, progress: Progress
    ) -> None:
        self._drawer = drawer
        self._lease = job.lease
        self._num_samples = job.options.num_samples or drawer.serving.num_samples
        self._embedder = embedder
        self._progress = progress
        self._bound = job.fingerprint
        self._binding = asyncio.Lock()
        self._rows = drawer.jobs.stored_rows(job.lease.job_id, incomplete_only=True)
        self._reading = asyncio.Lock()
        self._refused: list[tuple[int, LLMError]] = []
        self._draws: dict[int, Sequence[Draw]] = {}  # of the rows begun, by line

    async def work(self) -> None:
        """Draw row after row until none is left.

        A row that the LLM server refuses (too long, say) is left aside: it is no reason to lose the answers
        of all others. While nothing else has come, many refusals mean that the set-up is wrong.
        """
        while (stored := await self._next()) is not None:
            try:
                await self._draw(stored)
            except LLMError as error:
                self._refused.append((stored.row.line, error))
                hopeless = self._bound is None and len(self._refused) >= REFUSED_AT_FIRST
                if hopeless or error.extra.get("llm_status") not in REFUSALS:
                    raise
            await self._progress.advance()

    async def leave_refused(self) -> None:
        """Close the rows that were refused with the answers they have; raise if every row was refused."""
        for line, error in self._refused:
            if self._bound is None:
                raise error
            logger.warning("the LLM server refused the row on line %d", line)
            await self._drawer.jobs.keep_draws(self._lease, line, self._draws[line], complete=True)

    async def _next(self) -> StoredRow | None:
        async with self._reading:
            return await anext(self._rows, None)

    async def _draw(self, stored: StoredRow) -> None:
        draws, wanted = stored.draws[: self._num_samples], self._num_samples
        left = DRAWN_AGAIN * wanted - len(draws)
        while len(draws) < wanted and left > 0:
            self._draws[stored.row.line] = draws
            request = row_request(self._drawer.serving, stored.row, min(wanted - len(draws), left))
            got = await self._drawer.ask(request, self._progress)
            await self._bind(self._drawer.fingerprint(stored.row, self._embedder, got))
            draws = (*draws, *usable(got.draws, self._embedder.empty_answers))[:wanted]
            left -= len(got.draws)
            complete = len(draws) == wanted or left <= 0
            await self._drawer.jobs.keep_draws(self._lease, stored.row.line, draws, complete=complete)

    async def _bind(self, fingerprint: Fingerprint) -> None:
        """Store the fingerprint before the first answer; refuse answers of another set-up after that.

        It counts as bound once the store has it: until then no worker keeps an answer.
        """
        async with self._binding:
            if self._bound is None:
                await self._drawer.jobs.bind(self._lease, fingerprint)
                self._bound = fingerprint
        check_same(self._bound, fingerprint)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    found = errors.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
