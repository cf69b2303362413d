"""The Python client over a service that is killed with -9: one job, followed to its end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.both_clients import Driver, awaited, waiting
from tests.support.openai_server import OpenAIServer, serving_in_thread
from tests.support.services import Hold, asked, cities, llm_and_embedder, questions, service, until


@pytest.fixture(params=[waiting, awaited], ids=["Client", "AsyncClient"])
def drive(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def test_a_job_is_waited_for_over_a_kill_9(drive: Driver, store: str, tmp_path: Path) -> None:
    hold = Hold(after=10)
    server = OpenAIServer(default=llm_and_embedder(cities, hold=hold))
    with serving_in_thread(server):
        with service(store, server, tmp_path) as first:
            url = str(first.http.base_url).rstrip("/")
            with drive(url) as client:
                job = client.calibrate(questions(40), name="mine")
                events: Iterator[Any] = client.events(job.id, patience_s=200)
                seen = [next(events)]
                until(lambda: len(asked(server)) > hold.after)
                first.process.kill()
                first.process.wait()
                hold.go_on()
                with service(store, server, tmp_path, port=url.rsplit(":", 1)[1]):
                    seen += events
                    assert [one.id for one in client.jobs()] == [job.id]
                    assert client.wait(job.id) == seen[-1]
    assert (seen[-1].state, seen[-1].calibration_id is not None) == ("succeeded", True)
    assert {one.id for one in seen} == {job.id}
