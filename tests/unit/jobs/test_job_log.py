"""Log lines of jobs: waiting, failing, cancelled, and taken over from a killed replica."""

import asyncio
import logging
from pathlib import Path

import pytest

from service.calibration.store import SqlCalibrations
from service.errors import LLMError
from service.jobs.model import JobOptions
from service.jobs.store import SqlJobs
from tests.support.fakes import FakeLLM
from tests.support.job_worker import Replica, dev_rows, replica
from tests.support.sqlite_store import CopiedDatabase
from tests.support.task_engine import TaskEngine

ROWS = 32


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="service")


async def submitted(made: Replica) -> str:
    return (await made.jobs.submit(dev_rows(ROWS), JobOptions()))[0].id


async def until(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Wait for a log line, which follows the write to the store."""
    async with asyncio.timeout(60):
        while text not in caplog.text:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("status", [400, 401])
async def test_failure_is_logged_without_text_of_the_llm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    detail = f"The LLM server answered with status {status}."
    llm = FakeLLM(fail_with=[LLMError(detail, llm_status=status, llm_message="no\nkey")] * 100)
    url = f"sqlite:///{tmp_path / 'store.db'}"
    async with replica(url, llm, engine=TaskEngine()) as made:
        job_id = await submitted(made)
        await until(caplog, f"job {job_id} failed: llm_error: {detail}")
        assert "key" not in caplog.text, "what the LLM server says may quote prompts"


async def test_wait_is_logged_once_until_progress(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    database = CopiedDatabase(tmp_path)
    jobs = SqlJobs(database, SqlCalibrations(database))
    job, _ = await jobs.submit(dev_rows(ROWS), JobOptions())
    await jobs.begin(job.id)
    for _ in range(3):
        await jobs.note(job.id, "waiting")
    await jobs.note(job.id, LLMError("waiting for more.", llm_message="Where is the treasure?").full_detail)
    await database.stop()
    # The exporter thread of another test may also log.
    ours = [record.message for record in caplog.records if record.name.startswith("service")]
    assert ours == [f"job {job.id}: waiting", f"job {job.id}: waiting for more."]
