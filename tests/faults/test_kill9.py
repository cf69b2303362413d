"""Real processes killed with -9: jobs end with the same result, and stored answers are not sampled again."""

from pathlib import Path
from typing import Any

from service.calibration.calibration import Calibration
from service.jobs.model import JobOptions
from tests.support.following import states
from tests.support.job_worker import NUM_SAMPLES, dev_rows, go_on, hold
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

ROWS = 64


def outcome(calibration: Calibration) -> dict[str, Any]:
    """Return the calibration without its id and time."""
    return {
        "parameters": calibration.parameters,
        "method": calibration.method,
        "fingerprint": calibration.fingerprint,
    }


async def test_job_survives_three_kills(tmp_path: Path) -> None:
    url, log = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "log"
    async with idle_replica(url) as outside:
        job, _ = await outside.jobs.submit(dev_rows(ROWS), JobOptions())
        for life in range(1, 4):
            missing = 14 * life - len(await kept_prompts(outside, job))
            hold(log, after=len(requests(log)) + missing + 4)  # it may go on a little, but not to the end
            async with worker(url, log, slow_s=0.05) as process:
                await until_kept(outside, job, 14 * life)
                await kill(process)
            kept, before = await kept_prompts(outside, job), len(requests(log))
            running = await outside.store.get(job.id)
            assert running is not None
            assert running.state == "running"
            hold(log, after=before + 3)
            async with worker(url, log, slow_s=0.05):
                await until_asked(log, before + 3)
            assert not {request.prompt for request in requests(log)[before:]} & kept
        go_on(log)
        async with worker(url, log):
            fitted = outcome(await final(outside, job))
    drawn = requests(log)
    assert {request_.prompt for request_ in drawn} == {f"question {i}" for i in range(ROWS)}
    assert {score.num_samples for score in drawn} == {NUM_SAMPLES}
    assert len(drawn) <= ROWS + 6 * 2  # six kills, two slots: only the requests in progress
    assert fitted == outcome(await undisturbed(tmp_path, ROWS))


async def test_job_survives_a_kill_after_sampling(tmp_path: Path) -> None:
    """Nothing is sampled again with all answers stored, and there is one result."""
    url, log = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "log"
    async with idle_replica(url) as outside:
        job, _ = await outside.jobs.submit(dev_rows(ROWS), JobOptions())
        hold(log, embedding=True)
        async with worker(url, log) as process:
            async for state in states(outside.jobs, job.id):
                if state.stage == "embedding":
                    await kill(process)
                    break
            assert state.finished_at is None
        go_on(log)
        before = requests(log)
        async with worker(url, log):
            fitted = outcome(await final(outside, job))
        assert requests(log) == before
        assert len(await outside.calibrations.list_all()) == 1
    assert fitted == outcome(await undisturbed(tmp_path, ROWS))
