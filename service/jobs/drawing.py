"""When a job waits before it asks the LLM or the embedder: for one that is down, and for live scores."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from service.embedding.outcomes import usable
from service.errors import (
    DeadlineExceeded,
    EigencalError,
    EmbedderUnavailable,
    LLMError,
    LLMUnavailable,
    Overloaded,
)
from service.jobs.model import DevRow, check_same
from service.jobs.store import ClaimedJob, JobStore, LeaseLostError, Progress, StoredRow
from service.llm.port import (
    Draw,
    EmbedderIdentity,
    Fingerprint,
    Generation,
    GenerationRequest,
    LanguageModel,
    service_fingerprint,
)
from service.scoring.serving import LiveLoad, Serving

T = TypeVar("T")
Notify = Callable[[str], Awaitable[None]]

_POLL_S = 0.02
# Statuses by which a server refuses a single request.
REFUSALS = frozenset({400, 413, 422})
_PASSING = (LLMUnavailable, EmbedderUnavailable, Overloaded, DeadlineExceeded, LLMError)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try. Waits double from `first_wait_s` to `longest_wait_s`.

    `give_up_s`: of failing in a row in ways that may pass. A server that answers with 500, with nonsense or
    not in time is treated like one that is down: it may be on its way up, or its proxy may speak for it.
    `refused_give_up_s`: of refusing everything from the start, which is mostly a wrong set-up.
    `ask_again_s`: before each time that rows are asked again which were refused while others were answered.
    """

    first_wait_s: float = 0.5
    longest_wait_s: float = 15.0
    give_up_s: float = 6 * 3600.0
    refused_give_up_s: float = 300.0
    ask_again_s: tuple[float, ...] = (5.0, 60.0)

    async def keep_trying(
        self, attempt: Callable[[], Awaitable[T]], notify: Notify, *, refusals_pass: bool = False
    ) -> T:
        """Return what `attempt` returns, however often it fails before in a way that may pass.

        `notify` is told what is waited for. Raises the last error when it will not pass.
        """
        began, wait = time.monotonic(), self.first_wait_s
        while True:
            try:
                return await attempt()
            except _PASSING as error:
                passing = may_pass(error) or (refusals_pass and refuses(error))
                if not passing or time.monotonic() - began > self.give_up_s:
                    raise
                reason: EigencalError = error
            told = reason.told if isinstance(reason, LLMError) else reason.detail
            await notify(f"Waiting to try again: {told}")
            await asyncio.sleep(max(wait, min(reason.retry_after_s or 0.0, self.longest_wait_s)))
            wait = min(2 * wait, self.longest_wait_s)


def may_pass(error: EigencalError) -> bool:
    """Tell whether the same call may succeed later."""
    status = error.extra.get("llm_status")
    return error.retryable or (isinstance(status, int) and status >= 500)


def refuses(error: EigencalError) -> bool:
    """Tell whether the LLM server refused this very request, as it may another row alone."""
    return error.extra.get("llm_status") in REFUSALS


class LiveFirst:
    """Turns for work that may wait.

    While nothing live is under way, every turn begins at once. While something is, one turn at a time, each
    after a wait for a quiet moment. Where none comes, that wait lasts so long that turns take `share` of the
    time, and `max_wait_s` at most: a calibration is slowed, but gets on however busy the service is.
    `live` counts the live scores under way; without it there are none.
    """

    def __init__(self, live: LiveLoad | None = None, *, share: float = 0.5, max_wait_s: float = 3.0) -> None:
        if not 0 < share <= 1:
            raise ValueError("the share of the time must be above 0 and at most 1")
        self._live = live or LiveLoad()
        self._pause = (1 - share) / share  # after a turn, in units of its length
        self._max_wait_s = max_wait_s
        self._next = 0.0  # the earliest that a turn may begin beside live work
        self._one = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold a turn; waits for it to begin."""
        if not self._live.under_way:
            yield
            return
        async with self._one:
            quiet = await self._quiet()
            if not quiet:
                async with self._beside():
                    yield
        if quiet:
            yield

    @asynccontextmanager
    async def _beside(self) -> AsyncIterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            now = time.monotonic()
            self._next = now + min(self._pause * (now - began), self._max_wait_s)

    async def _quiet(self) -> bool:
        """Wait for a moment without live work; False when none came in time."""
        while self._live.under_way:
            left = self._next - time.monotonic()
            if left <= 0:
                return False
            await asyncio.sleep(min(_POLL_S, left))
        return True


# The sampling stage: draw what is missing, keep each row as soon as it is there.

logger = logging.getLogger(__name__)

LOW_PRIORITY = 10
# Rows refused in a row, none answered between them, that raise the question whether the server refuses all.
REFUSED_IN_A_ROW = 5
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
        self.slots = slots
        self._free = asyncio.Semaphore(slots)  # shared by jobs that run at the same time
        self._live_first = live_first or LiveFirst()
        self.patience = patience or Patience()

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
            await self.patience.keep_trying(lambda: self._llm.generate(request), progress.note)

    async def draw(self, job: ClaimedJob, embedder: EmbedderIdentity, progress: Progress) -> None:
        """Draw until every row has all of its answers, or was refused for good while others were answered.

        Raises LeaseLostError, and what will not pass.
        """
        # Asked for anew: a run of the same claim that the store broke off may have stored it.
        bound = await self.jobs.fingerprint(job.lease.job_id)
        run = _Run(self, replace(job, fingerprint=bound), embedder, progress)
        try:
            await run.draw_all()
        except* (EigencalError, LeaseLostError) as errors:
            raise _first(errors) from None

    async def ask(
        self, request: GenerationRequest, progress: Progress, *, refusals_pass: bool = False
    ) -> Generation:
        """Return answers, at least one, once it is our turn and the server is there."""

        async def in_turn() -> Generation:
            async with self._free, self._live_first.turn():
                return await self._llm.generate(request)

        return await self.patience.keep_trying(in_turn, progress.note, refusals_pass=refusals_pass)


class _Run:
    """One run of the sampling stage: workers that share the rows and the fingerprint.

    No refusal of a row (too long, say) is final at once, nor does it cost the other rows their answers. The
    row is left aside and asked again later. After several in a row a control request, for one answer to a row
    that was answered before, tells whether the server refuses the rows or everything: then the run waits.
    """

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
        self._rows: AsyncIterator[StoredRow] = drawer.jobs.stored_rows(job.lease.job_id, incomplete_only=True)
        self._reading = asyncio.Lock()
        self._aside: list[tuple[StoredRow, LLMError]] = []
        self._draws: dict[int, Sequence[Draw]] = {}  # of rows that have some of their answers, by line
        self._answered: DevRow | None = None
        self._in_a_row = 0  # refusals since the last answer
        self._doubt_from = REFUSED_IN_A_ROW
        self._controlling = asyncio.Lock()
        self._back_at = float("-inf")  # when the server last answered again, having refused everything
        self._refused_since: float | None = None
        self._wait_s = drawer.patience.first_wait_s

    async def draw_all(self) -> None:
        """Draw all rows, then, each time after a wait, those left aside; store why the last have no answers.

        Raises the server's refusal where it has never answered anything.
        """
        self._answered = await self._answered_before()
        patience = self._drawer.patience
        for wait_s in patience.ask_again_s:
            await self._draw_rows()
            if not self._aside:
                return
            await self._wait_aside(wait_s)
        self._doubt_from = 1  # what is refused now is so for good: each time it must be the row alone
        await self._draw_rows()
        for stored, error in self._aside:
            logger.warning("the LLM server refused the row on line %d for good", stored.row.line)
            await self._drawer.jobs.refuse(self._lease, stored.row.line, error.told)
            await self._progress.advance()

    async def _answered_before(self) -> DevRow | None:
        if self._bound is not None:
            async for one in self._drawer.jobs.stored_rows(self._lease.job_id):
                if one.draws and one.row.samples is None:
                    return one.row
        return None

    async def _wait_aside(self, wait_s: float) -> None:
        count, said = len(self._aside), self._aside[-1][1].told
        rows = "a row" if count == 1 else f"{count} rows"
        await self._progress.note(f"Waiting to ask again for {rows} that the LLM server refused: {said}")
        await asyncio.sleep(wait_s)
        self._take_aside()

    def _take_aside(self) -> None:
        self._rows, self._aside = _each([stored for stored, _ in self._aside]), []

    async def _draw_rows(self) -> None:
        """Draw the rows; those left aside again, at once, for as long as none was ever answered."""
        while True:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._drawer.slots):
                    group.create_task(self._work())
            if self._answered is not None or not self._aside:
                return
            self._take_aside()

    async def _work(self) -> None:
        """Draw row after row until none is left."""
        stored = await self._next()
        while stored is not None:
            try:
                await self._draw(stored)
            except LLMError as error:
                if not refuses(error):
                    raise
                self._in_a_row += 1
                if self._in_a_row >= self._doubt_from and not await self._is_row_alone(error):
                    continue
                self._aside.append((stored, error))
            else:
                self._answered, self._in_a_row = stored.row, 0
                await self._progress.advance()
            stored = await self._next()

    async def _is_row_alone(self, error: LLMError) -> bool:
        """Return whether the server answers others; where it does not, return False once it does again.

        Raises the refusal when patience ends.
        """
        refused_at = time.monotonic()
        async with self._controlling:
            if self._in_a_row == 0:  # another worker has seen meanwhile that it answers
                return refused_at > self._back_at
            if self._answered is None:
                await self._wait_for_first(error)
                return True
            request = row_request(self._drawer.serving, self._answered, 1)
            try:
                await self._drawer.ask(request, self._progress)
            except LLMError as again:
                if not refuses(again):
                    raise
                await self._drawer.ask(request, self._progress, refusals_pass=True)
                self._back_at = time.monotonic()
            self._in_a_row = 0
            return refused_at > self._back_at

    async def _wait_for_first(self, error: LLMError) -> None:
        """Wait before another row is asked, while none was ever answered; raise when that takes too long."""
        patience = self._drawer.patience
        self._refused_since = self._refused_since or time.monotonic()
        if time.monotonic() - self._refused_since > patience.refused_give_up_s:
            raise error
        await self._progress.note(f"Waiting to try again: {error.told}")
        await asyncio.sleep(self._wait_s)
        self._wait_s = min(2 * self._wait_s, patience.longest_wait_s)

    async def _next(self) -> StoredRow | None:
        async with self._reading:
            return await anext(self._rows, None)

    async def _draw(self, stored: StoredRow) -> None:
        line, wanted = stored.row.line, self._num_samples
        draws = self._draws.get(line, stored.draws)[:wanted]
        left = DRAWN_AGAIN * wanted - len(draws)
        while len(draws) < wanted and left > 0:
            request = row_request(self._drawer.serving, stored.row, min(wanted - len(draws), left))
            got = await self._drawer.ask(request, self._progress)
            await self._bind(self._drawer.fingerprint(stored.row, self._embedder, got))
            draws = (*draws, *usable(got.draws, self._embedder.empty_answers))[:wanted]
            left -= len(got.draws)
            complete = len(draws) == wanted or left <= 0
            await self._drawer.jobs.keep_draws(self._lease, line, draws, complete=complete)
            if complete:
                self._draws.pop(line, None)
            else:
                self._draws[line] = draws

    async def _bind(self, fingerprint: Fingerprint) -> None:
        """Store the fingerprint before the first answer; refuse answers of another set-up after that.

        It counts as bound once the store has it: until then no worker keeps an answer.
        """
        async with self._binding:
            if self._bound is None:
                await self._drawer.jobs.bind(self._lease, fingerprint)
                self._bound = fingerprint
        check_same(self._bound, fingerprint)


async def _each(rows: Sequence[StoredRow]) -> AsyncIterator[StoredRow]:
    for one in rows:
        yield one


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    found = errors.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
