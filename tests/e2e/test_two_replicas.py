"""Two replicas on one PostgreSQL share activations and limits, and finish the jobs of a dead replica."""

import asyncio
import signal
from pathlib import Path

import pytest

from service.jobs.model import JobOptions
from tests.support.calibrations import add, calibration
from tests.support.job_worker import dev_rows, go_on, hold
from tests.support.postgres import Cluster
from tests.support.processes import (
    final,
    idle_replica,
    kept_prompts,
    kill,
    requests,
    undisturbed,
    until,
    until_asked,
    until_kept,
    worker,
)

ROWS = 60
SLOTS = 2
pytestmark = pytest.mark.postgres


@pytest.fixture
def url(postgres: Cluster) -> str:
    return postgres.database()


async def test_activation_reaches_the_other_replica(url: str) -> None:
    async with idle_replica(url) as first, idle_replica(url) as second:
        for made in (calibration(), calibration(temperature=3.0)):
            await add(first.calibrations, made, {})
            await first.calibrations.activate(made.id)
            key = made.fingerprint.key()
            assert first.calibrations.active(key) == made
            async with asyncio.timeout(60):
                while second.calibrations.active(key) != made:
                    await asyncio.sleep(0.01)


async def test_request_limit_of_a_job_holds_with_two_replicas(url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with (
        idle_replica(url) as outside,
        worker(url, log),
        worker(url, log),
    ):
        hold(log, after=0)
        job, _ = await outside.jobs.submit(dev_rows(ROWS), JobOptions())
        await until_asked(log, SLOTS)
        await asyncio.sleep(2.0)  # each looks for further jobs several times
        assert len(requests(log)) == SLOTS
        go_on(log)
        await final(outside, job)


async def test_jobs_of_a_killed_replica_are_taken_over(url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with (
        idle_replica(url) as outside,
        worker(url, log, slow_s=0.05) as a,
        worker(url, log, slow_s=0.05) as b,
    ):
        hold(log, after=ROWS // 2)
        job, _ = await outside.jobs.submit(dev_rows(ROWS), JobOptions())
        await until_kept(outside, job, ROWS // 4)
        owner = {process.pid: process for process in (a, b)}[requests(log)[0].pid]
        await kill(owner)
        kept, before = await kept_prompts(outside, job), len(requests(log))
        go_on(log)
        ended = await final(outside, job)
        after = requests(log)[before:]
        assert {process_.pid for process_ in after} == {a.pid, b.pid} - {owner.pid}
        assert not {request.prompt for request in after} & kept
        assert len(requests(log)) <= ROWS + SLOTS
    assert ended.parameters == (await undisturbed(tmp_path, ROWS)).parameters


async def test_frozen_replica_that_resumes_does_no_harm(url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with (
        idle_replica(url) as outside,
        worker(url, log, slow_s=0.05) as a,
        worker(url, log, slow_s=0.05) as b,
    ):
        hold(log, after=ROWS // 4)
        job, _ = await outside.jobs.submit(dev_rows(ROWS), JobOptions())
        await until_asked(log, ROWS // 4 + SLOTS)
        await until_kept(outside, job, ROWS // 4)
        # The latest request is blocked, so its replica is working on a row.
        frozen, peer = (a, b) if requests(log)[-1].pid == a.pid else (b, a)
        frozen.send_signal(signal.SIGSTOP)
        hold(
            log, after=ROWS
        )  # the job does not end, because the frozen replica's requests are repeated beyond them
        num_requests = len([request for request in requests(log) if request.pid == peer.pid])

        async def peer_takes_over() -> bool:
            """The rows in progress at the frozen replica are requested again."""
            drawn = [request.prompt for request in requests(log)]
            return len(set(drawn)) < len(drawn)

        await until(peer_takes_over)
        frozen.send_signal(signal.SIGCONT)  # in the middle of the peer's work
        await asyncio.sleep(2.0)  # at its next beat it detects the takeover
        go_on(log)
        ended = await final(outside, job)
        assert len([request for request in requests(log) if request.pid == peer.pid]) > num_requests
        assert len(requests(log)) <= ROWS + 2 * SLOTS  # each slot may repeat its request and send one more
        assert [r.calibration for r in await outside.calibrations.list_all()] == [ended]
        await kill(peer)
        again, _ = await outside.jobs.submit(dev_rows(ROWS), JobOptions(activate="always"))
        await final(outside, again)  # the resumed replica is healthy
    assert ended.parameters == (await undisturbed(tmp_path, ROWS)).parameters
