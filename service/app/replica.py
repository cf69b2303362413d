"""The store of one replica and its jobs: every object that they are made of, and what it is given."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from service.adapters.jobs.durable import DurableJobs
from service.adapters.jobs.engine import DbosEngine, JobEngine
from service.adapters.store import ActiveCalibrations, Database, Replicas, SqlCalibrations, SqlJobs
from service.adapters.store.kept import SqlKept
from service.adapters.store.keys import SqlKeys
from service.adapters.store.location import jobs_url
from service.domain.calibrating.calibrator import Calibrator
from service.domain.calibrating.material import Embedding
from service.domain.jobs.drawing import Drawer
from service.domain.jobs.intake import Alike
from service.domain.jobs.setup import Setup
from service.domain.jobs.waiting import LiveFirst, Patience
from service.domain.ports import Embedder, LanguageModel
from service.domain.serving import LiveLoad, Serving
from service.domain.study.evaluator import ByKind, Evaluator


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often a replica looks at the store.

    active_poll_s: for calibrations that others activated. beat_s: between the beats of a replica. lease_s:
    one whose beat stood still for so long is dead, and peers take its jobs over. watch_s: for the progress of
    jobs that callers watch.
    """

    active_poll_s: float = 0.5
    beat_s: float = 1.0
    lease_s: float = 10.0
    watch_s: float = 0.3


DEFAULT_INTERVALS = Intervals()


@dataclass(slots=True)
class Replica:
    """The store of one replica and its share of the jobs, started in the order in which they need each other.

    database, active, store are what the ports of the application, `calibrations`, `jobs`, `kept` and `keys`,
    are made of.
    """

    database: Database
    active: ActiveCalibrations
    store: SqlJobs
    calibrations: SqlCalibrations
    jobs: DurableJobs
    kept: SqlKept
    keys: SqlKeys
    peers: Replicas
    _started: AsyncExitStack = field(default_factory=AsyncExitStack, init=False)

    async def start(self) -> None:
        """Bring the schema up to date, learn what is active, take up the jobs that were left."""
        for component in (self.database, self.active, self.kept, self.jobs):
            self._started.push_async_callback(component.stop)
            await component.start()

    async def stop(self) -> None:
        """Stop the jobs, which go on at the next start, and close the store; idempotent."""
        await self._started.aclose()

    async def check(self) -> None:
        """Return when the store takes jobs; raise StoreUnavailable when it does not."""
        await self.jobs.check()


def build_replica(
    database_url: str,
    *,
    replica_id: str,
    llm: LanguageModel,
    embedder: Embedder,
    serving: Serving,
    setup: Setup,
    slots: int,
    live: LiveLoad,
    kept_documents: int = 10_000,
    own_keys: Callable[[], tuple[str, ...]] = lambda: (),
    version: str = "",
    engine: JobEngine | None = None,
    patience: Patience | None = None,
    intervals: Intervals = DEFAULT_INTERVALS,
) -> Replica:
    """Return the store and the jobs of one replica, not started.

    Jobs draw with `slots` requests at once and give way to the `live` scores. `own_keys` returns the keys of
    the fingerprints of the present set-up, whose settings are `setup`; `version` is the service's, for
    results. At most `kept_documents` of a kind are kept. `engine` None: DBOS, beside the store. Raises
    ValueError for a URL that is neither SQLite nor Postgres.
    """
    database = Database(database_url)
    active = ActiveCalibrations(database, poll_s=intervals.active_poll_s)
    store = SqlJobs(database, active, setup=setup)
    calibrations = SqlCalibrations(database, active, own_keys=own_keys)

    # Each has turns of its own: a draw takes the LLM, which embedding need not wait for.
    drawer = Drawer(llm, store, serving, slots=slots, live_first=LiveFirst(live), patience=patience)
    embedding = Embedding(embedder, live_first=LiveFirst(live), patience=patience)
    calibrator = Calibrator(store, calibrations, drawer, embedding)
    evaluator = Evaluator(store, embedder, embedding, version=version)

    lanes = setup.keys()
    peers = Replicas(database, replica_id, lanes, beat_s=intervals.beat_s, lease_s=intervals.lease_s)
    jobs = DurableJobs(
        store,
        peers,
        ByKind(calibrator, evaluator),
        engine or DbosEngine(jobs_url(database.url), executor_id=replica_id, lanes=lanes),
        owner=replica_id,
        alike=Alike(drawer.way),
        beat_s=intervals.beat_s,
        poll_s=intervals.watch_s,
    )
    kept = SqlKept(database, max_documents=kept_documents)
    return Replica(database, active, store, calibrations, jobs, kept, SqlKeys(database), peers)
