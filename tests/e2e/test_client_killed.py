"""The Python client while the service is killed with -9: one job, still awaited."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.both_clients import Driver, awaited, waiting
from tests.support.openai_server import OpenAIServer, serving_in_thread
from tests.support.services import Hold, asked, cities, llm_and_embedder, questions, service, until


@pytest.fixture(params=[waiting, awaited], ids=["Client", "AsyncClient"])
def drive(request: pytest.FixtureRequest) -> Driver:
    param: Driver = request.param
    return param


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def test_waiting_for_a_job_survives_kill_9(drive: Driver, store: str, tmp_path: Path) -> None:
    hold = Hold(after=10)
    server = OpenAIServer(default=llm_and_embedder(cities, hold=hold))
    with serving_in_thread(server):
        with service(store, server, tmp_path) as first:
            url = str(first.http.base_url).rstrip("/")
            with drive(url) as client, ThreadPoolExecutor(1) as beside:
                job = client.calibrate(questions(40), name="mine")
                waiting_for = beside.submit(client.wait, job.id)
                until(lambda: len(asked(server)) > hold.after)
                first.process.kill()
                first.process.wait()
                hold.go_on()
                with service(store, server, tmp_path, port=url.rsplit(":", 1)[1]):
                    done = waiting_for.result()
                    assert [job_.id for job_ in client.jobs()] == [job.id]
    assert (done.id, done.succeeded, done.calibration_id is not None) == (job.id, True, True)
