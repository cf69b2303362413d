"""How far a run is, written to the store now and then."""

import logging
import time
from collections.abc import Callable

from service.domain.jobs.model import JobStage
from service.domain.jobs.store import JobStore, Lease

logger = logging.getLogger(__name__)

NOTE_AGAIN_S = 60.0  # a wait that comes and goes is told to the log this often at most


class Progress:
    """Progress of one stage. Writes are at least `every_s` apart, but for the first and for changed notes."""

    def __init__(
        self,
        store: JobStore,
        lease: Lease,
        stage: JobStage,
        total: int,
        *,
        done: int = 0,
        every_s: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._lease, self._stage = store, lease, stage
        self._total, self._done, self._done_before = total, done, done
        self._every_s, self._clock = every_s, clock
        self._began = clock()
        self._written = float("-inf")
        self._note = ""
        self._logged, self._logged_at = "", float("-inf")

    async def begin(self) -> None:
        """Show the stage, in the log, too."""
        logger.info("job %s: %s, %d of %d done", self._lease.job_id, self._stage, self._done, self._total)
        await self._write()

    async def advance(self, by: int = 1) -> None:
        """Count units done. Raises LeaseLostError when the run must stop."""
        self._done += by
        changed, self._note = bool(self._note), ""
        if changed or self._clock() - self._written >= self._every_s:
            await self._write()

    async def note(self, text: str) -> None:
        """Say what the run waits for; gone with the next unit done."""
        if text != self._note:
            self._note = text
            self._log(text)
            await self._write()

    def _log(self, text: str) -> None:
        now = self._clock()
        if text != self._logged or now - self._logged_at >= NOTE_AGAIN_S:
            self._logged, self._logged_at = text, now
            logger.warning("job %s: %s", self._lease.job_id, text)

    def eta_s(self) -> float | None:
        """Return the seconds left at this run's own pace so far; None before its first unit."""
        here = self._done - self._done_before
        if here <= 0:
            return None
        return (self._total - self._done) * (self._clock() - self._began) / here

    async def _write(self) -> None:
        self._written = self._clock()
        eta = self.eta_s()
        await self._store.progress(self._lease, self._stage, self._done, self._total, eta, self._note)
