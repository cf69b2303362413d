"""GET /scores/{id}: the stored score, for its own key, from any replica."""

import asyncio
import logging
from pathlib import Path

import httpx2 as httpx
import pytest

from service.app import create_app
from service.ids import new_id
from service.settings import Settings
from tests.api.conftest import Client
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.sqlite_store import SqliteStore

PROMPT = {"prompt": "What is the capital of France?", "return": ["modes", "samples"]}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_a_score_belongs_to_the_key_that_it_was_made_under(client: Client) -> None:
    """A score of another key looks like a missing one."""
    async with client(score_key="of-scores", admin_key="of-admins") as http:
        made = {
            key: (await http.post("/score", json=PROMPT, headers=bearer(key))).json()["id"]
            for key in ("of-scores", "of-admins")
        }
        for key in made:
            for owner, id_ in made.items():
                response = await http.get(f"/scores/{id_}", headers=bearer(key))
                assert response.status_code == (200 if owner == key else 404)
        lines = await http.post("/score/batch", json={"items": [PROMPT]}, headers=bearer("of-admins"))
        of_batch = lines.json()["result"]["id"]
        assert (await http.get(f"/scores/{of_batch}", headers=bearer("of-admins"))).status_code == 200
        assert (await http.get(f"/scores/{of_batch}", headers=bearer("of-scores"))).status_code == 404
        other = await http.get(f"/scores/{new_id('scr')}", headers=bearer("of-admins"))
        hidden = await http.get(f"/scores/{made['of-scores']}", headers=bearer("of-admins"))
        assert {**other.json(), "request_id": ""} == {**hidden.json(), "request_id": ""}
        assert (await http.get(f"/scores/{of_batch}")).status_code == 401
        assert (await http.get(f"/scores/{of_batch}", headers=bearer("wrong"))).status_code == 401


async def test_score_survives_a_failing_store(
    llm: FakeLLM, embedder: FakeEmbedder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store = SqliteStore()
    app = create_app(Settings(data_dir=tmp_path), llm=llm, embedder=embedder, store=store)
    async with app.router.lifespan_context(app):
        store.kept.available = False
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            answered = await http.post("/score", json=PROMPT)
            assert answered.status_code == 200
            await asyncio.sleep(0.5)
            assert (await http.get(f"/scores/{answered.json()['id']}")).status_code == 200
            of_another = await http.get("/scores/scr_01K00000000000000000000000")
            assert (of_another.status_code, of_another.json()["code"]) == (503, "store_unavailable")
    assert PROMPT["prompt"] not in caplog.text
