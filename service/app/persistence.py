"""Store and durable jobs put together: started in the order in which they need each other."""

from collections.abc import Callable
from contextlib import AsyncExitStack

from service.adapters.jobs.alike import Alike
from service.adapters.jobs.dbos_engine import DbosEngine
from service.adapters.jobs.durable import DurableJobs
from service.adapters.store import ActiveCalibrations, Database, SqlCalibrations, SqlJobs
from service.adapters.store.urls import jobs_url
from service.domain.calibrating.calibrator import Calibrator
from service.domain.calibrating.material import Embedding
from service.domain.jobs.drawing import Drawer
from service.domain.jobs.live_first import LiveFirst
from service.domain.jobs.setup import Setup
from service.domain.live_load import LiveLoad
from service.domain.ports import Embedder, LanguageModel
from service.domain.serving import Serving
from service.domain.study.evaluator import ByKind, Evaluator


class Persistence:
    """The store of one replica and its share of the jobs.

    `live` counts the scores under way, to which jobs give way; `own_keys` the keys of the
    fingerprints of the present set-up, whose settings are `setup`; `version` is the service's, for results.
    Raises ValueError for a URL that is neither SQLite nor Postgres.
    """

    def __init__(
        self,
        database_url: str,
        *,
        replica_id: str,
        llm: LanguageModel,
        embedder: Embedder,
        serving: Serving,
        setup: Setup,
        slots: int,
        live: LiveLoad,
        own_keys: Callable[[], tuple[str, ...]],
        version: str = "",
    ) -> None:
        self._database = Database(database_url)
        self._active = ActiveCalibrations(self._database)
        store = SqlJobs(self._database, self._active, setup=setup)
        self.calibrations = SqlCalibrations(self._database, self._active, own_keys=own_keys)
        # Turns of their own: a draw takes the LLM, which embedding need not wait for.
        drawer = Drawer(llm, store, serving, slots=slots, live_first=LiveFirst(live))
        embedding = Embedding(embedder, live_first=LiveFirst(live))
        calibrator = Calibrator(store, self.calibrations, drawer, embedding)
        pipeline = ByKind(calibrator, Evaluator(store, embedder, embedding, version=version))
        engine = DbosEngine(jobs_url(self._database.url), executor_id=replica_id, lanes=setup.keys())
        self.jobs = DurableJobs(store, pipeline, engine, owner=replica_id, alike=Alike(drawer.way))
        self._started = AsyncExitStack()

    async def start(self) -> None:
        """Bring the schema up to date, learn what is active, take up the jobs that were left."""
        for part in (self._database, self._active, self.jobs):
            self._started.push_async_callback(part.stop)
            await part.start()

    async def stop(self) -> None:
        """Stop the jobs, which go on at the next start, and close the store; idempotent."""
        await self._started.aclose()

    async def check(self) -> None:
        """Return when the store takes jobs; raise StoreUnavailable when it does not."""
        await self.jobs.check()
