"""Real processes, really killed: a job ends with the same result, and no kept answer is drawn again."""

from pathlib import Path

import pytest

from service.domain.jobs import CalibrateOptions
from tests.support.job_worker import NUM_SAMPLES, dev_rows
from tests.support.processes import (
    final,
    idle_replica,
    kept_prompts,
    kill,
    requests,
    undisturbed,
    until_asked,
    until_kept,
    worker,
)

ROWS = 60
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_killed_three_times(tmp_path: Path) -> None:
    url, log = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "log"
    async with idle_replica(url) as outside:
        job, _ = await outside.jobs.submit(dev_rows(ROWS), CalibrateOptions())
        for life in range(1, 4):
            async with worker(url, log, slow_s=0.05) as process:
                await until_kept(outside, job, 14 * life)
                await kill(process)
            kept, before = await kept_prompts(outside, job), len(requests(log))
            running = await outside.jobs.get(job.id)
            assert running is not None
            assert running.state == "running"
            async with worker(url, log, slow_s=0.05):
                await until_asked(log, before + 3)
            assert not {one.prompt for one in requests(log)[before:]} & kept
        async with worker(url, log):
            ended = await final(outside, job)
    drawn = requests(log)
    assert {one.prompt for one in drawn} == {f"question {i}" for i in range(ROWS)}
    assert {one.num_samples for one in drawn} == {NUM_SAMPLES}
    assert len(drawn) <= ROWS + 6 * 2  # six kills, two slots: what was in flight, no more
    calm = await undisturbed(tmp_path, ROWS)
    assert ended.parameters == calm.parameters
    assert (ended.method, ended.fingerprint) == (calm.method, calm.fingerprint)


async def test_killed_after_sampling(tmp_path: Path) -> None:
    """Nothing is drawn again when all answers are there, and one calibration comes of it."""
    url, log = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "log"
    async with idle_replica(url) as outside:
        job, _ = await outside.jobs.submit(dev_rows(ROWS), CalibrateOptions())
        async with worker(url, log) as process:
            async for state in outside.jobs.events(job.id):
                if state.stage in ("embedding", "fitting", "reporting"):
                    await kill(process)
                    break
        before = requests(log)
        async with worker(url, log):
            await final(outside, job)
        assert requests(log) == before
        assert len(await outside.calibrations.list_all()) == 1
