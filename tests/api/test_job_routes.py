"""GET and DELETE /jobs."""

import pytest

from service.jobs.model import JobError
from tests.support.calibrations import rows
from tests.support.operator_world import NO_JOB, OPTIONS, World, problem


class TestJobs:
    async def test_list_jobs_and_get_one(self, world: World) -> None:
        async with world.client() as client:
            first, second = [(await world.jobs.submit(rows(), OPTIONS))[0] for _ in range(2)]
            listed = (await client.get("/jobs")).json()
            assert [job["id"] for job in listed] == [second.id, first.id]
            assert len((await client.get("/jobs?limit=1")).json()) == 1
            for limit in ("0", "6+", "+6", "6.0", "1_0", "%0A6", "\u0666", ""):
                problem(await client.get(f"/jobs?limit={limit}"), 422, "invalid_request")
            error = JobError(code="llm_unavailable", detail="The LLM server cannot be reached.")
            await world.store.change(
                first.id, state="failed", error_code=error.code, error_detail=error.detail
            )
            body = (await client.get(f"/jobs/{first.id}")).json()
            assert body["error"] == {"code": error.code, "detail": error.detail}

    @pytest.mark.parametrize("job_id", [NO_JOB, "job_none", "%00", "a%2Fb", "é"])
    @pytest.mark.parametrize("method", ["GET", "DELETE"])
    async def test_unknown_job_is_404(self, world: World, job_id: str, method: str) -> None:
        async with world.client() as client:
            problem(await client.request(method, f"/jobs/{job_id}"), 404, "not_found")

    async def test_cancel_job(self, world: World) -> None:
        async with world.client() as client:
            job, _ = await world.jobs.submit(rows(), OPTIONS)
            for _ in range(2):
                response = await client.delete(f"/jobs/{job.id}")
                assert (response.status_code, response.json()["state"]) == (200, "cancelled")
            done, _ = await world.jobs.submit(rows(), OPTIONS)
            await world.store.change(done.id, state="succeeded")
            problem(await client.delete(f"/jobs/{done.id}"), 409, "conflict")
