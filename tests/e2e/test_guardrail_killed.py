"""A replica killed between the two calls of a guardrail: another draws, and judges, in its place."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from service.store.database import store_url, sync_url
from service.store.tables import kept
from tests.support.openai_server import OpenAIServer, serving_in_thread
from tests.support.postgres import cluster
from tests.support.services import Hold, asked, cities, llm_and_embedder, service, until

PATH = "/beta/litellm_basic_guardrail_api"
CALL = {"litellm_call_id": "call-1", "texts": ["question 7"]}
MESSAGES = [{"role": "user", "content": "question 7"}]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'shared.db'}"
    else:
        with cluster() as running:
            yield running.database()


def posted(http: httpx.Client, **body: Any) -> httpx.Response:
    response = http.post(PATH, json=CALL | body)
    assert response.status_code == 200, response.text
    return response


def test_another_replica_draws_for_one_that_was_killed(url: str, tmp_path: Path) -> None:
    hold = Hold(after=0)
    with ExitStack() as stack:
        server = stack.enter_context(
            serving_in_thread(OpenAIServer(default=llm_and_embedder(cities, hold=hold)))
        )
        first, second = (
            stack.enter_context(
                service(url, server, tmp_path, replica_id=name, target_error="0.2", guardrail_wait_s="120")
            )
            for name in ("first", "second")
        )
        assert posted(first.http, input_type="request", structured_messages=MESSAGES).json() == {
            "action": "NONE"
        }
        until(lambda: len(asked(server)) == 1 and documents(url) == 1)
        first.process.kill()
        first.process.wait()
        hold.go_on()
        found = posted(second.http, input_type="response")
        assert found.headers["x-score-id"]
        assert "no calibration is applied" in found.headers["x-eigencal-reason"]
        score = second.http.get(f"/scores/{found.headers['x-score-id']}").json()
        assert score["num_samples"] == 5 and score["candidate"] is not None
        assert asked(server) == ["question 7"] * 2
        posted(second.http, input_type="response")
        assert len(asked(server)) == 2


def documents(url: str) -> int:
    engine = sa.create_engine(sync_url(store_url(url)), poolclass=sa.NullPool)
    with engine.connect() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(kept)).scalar_one())
