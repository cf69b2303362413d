"""GET and POST /keys, DELETE /keys/{id}: keys created while the service runs, and their permissions."""

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from service.app import create_app
from service.ids import new_id
from service.settings import Settings
from tests.api.conftest import Client
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.live import in_process

PROMPT = {"prompt": "What is the capital of France?"}
SHOWN = {"id", "name", "scope", "prefix", "created_at", "expires_at", "revoked_at", "state"}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def make(http: httpx.AsyncClient, scope: str = "score", by: str = "", **more: Any) -> dict[str, Any]:
    """Create a key and return the response."""
    headers = bearer(by) if by else {}
    answer = await http.post("/keys", json={"name": "a key", "scope": scope, **more}, headers=headers)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def scored(http: httpx.AsyncClient, key: str = "") -> tuple[int, str]:
    """Return status and error code of a score."""
    answer = await http.post("/score", json=PROMPT, headers=bearer(key) if key else {})
    return answer.status_code, answer.json().get("code", "")


async def test_key_is_shown_only_once(client: Client) -> None:
    ends = datetime.now(UTC) + timedelta(days=1)
    async with client() as http:
        body = {"name": "nightly", "scope": "score", "expires_at": ends.isoformat()}
        answer = await http.post("/keys", json=body)
        made = answer.json()
        listed = await http.get("/keys")
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/keys/{made['id']}"
    assert answer.headers["cache-control"] == "no-store"
    assert made.keys() == SHOWN | {"key", "warnings"}
    assert made["key"].startswith(made["prefix"]) and len(made["key"]) > len(made["prefix"]) + 32
    assert (made["name"], made["scope"], made["state"]) == ("nightly", "score", "valid")
    assert datetime.fromisoformat(made["expires_at"]) == ends
    assert listed.json() == [{name: made[name] for name in SHOWN}]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"scope": "score"}, "name"),
        ({"name": "x" * 201, "scope": "score"}, "name"),
        ({"name": "x", "scope": "root"}, "scope"),
        ({"name": "x", "scope": "score", "expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"name": "x", "scope": "score", "expires_at": "2999-01-01T00:00:00"}, "expires_at"),
        ({"name": "x", "scope": "score", "expires_at": "tomorrow"}, "expires_at"),
        ({"name": "x", "scope": "score", "expires_at": 32_503_680_000}, "expires_at"),
        ({"name": "x", "scope": "score", "expires_at": "9999-12-31T23:59:59-01:00"}, "expires_at"),
        ({"name": "x", "scope": "score", "key": "mine"}, "key"),
    ],
    ids=str,
)
async def test_invalid_key_request_is_explained_and_creates_no_key(
    client: Client, body: dict[str, Any], field: str
) -> None:
    async with client() as http:
        answer = await http.post("/keys", json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
        assert [error["loc"] for error in answer.json()["errors"]] == [["body", field]]
        assert (await http.get("/keys")).json() == []
        assert await scored(http) == (200, "")


async def test_revoked_key_is_refused(client: Client) -> None:
    async with client() as http:
        entry, other = await make(http), await make(http)
        assert [await scored(http, key["key"]) for key in (entry, other)] == [(200, "")] * 2
        gone = await http.delete(f"/keys/{entry['id']}")
        assert (gone.status_code, gone.content) == (204, b"")
        assert await scored(http, entry["key"]) == (401, "bad_key")
        assert await scored(http, other["key"]) == (200, "")
        first = next(key for key in (await http.get("/keys")).json() if key["id"] == entry["id"])
        assert first["state"] == "revoked" and first["revoked_at"]
        assert (await http.delete(f"/keys/{entry['id']}")).status_code == 204
        assert first in (await http.get("/keys")).json()  # revoked when it was revoked first


async def test_an_unknown_key_cannot_be_revoked(client: Client) -> None:
    async with client() as http:
        for id_ in (new_id("key"), "key_", new_id("cal"), "%00", "x" * 300):
            answer = await http.delete(f"/keys/{id_}")
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), id_


class TestWhatIsClosed:
    async def test_first_score_key_closes_scoring_with_a_warning(
        self, client: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with client() as http:
            assert await scored(http) == (200, "")
            first, second = await make(http), await make(http)
            assert [[warning["code"] for warning in made["warnings"]] for made in (first, second)] == [
                ["scope_closed"],
                [],
            ]
            assert await scored(http) == (401, "missing_key")
        assert sum("closed" in line.message for line in caplog.records if line.levelname == "WARNING") == 1

    async def test_the_first_admin_key_closes_loopback_but_not_scoring(self, client: Client) -> None:
        async with client() as http:
            made = await make(http, "admin")
            assert [warning["code"] for warning in made["warnings"]] == ["scope_closed"]
            assert (await http.get("/keys")).status_code == 401
            assert (await http.get("/jobs")).status_code == 401
            assert (await http.get("/jobs", headers=bearer(made["key"]))).status_code == 200
            assert await scored(http) == (200, "")

    async def test_keys_of_the_settings_stay_valid(self, client: Client) -> None:
        async with client(admin_key="of-admins", score_key="of-scores") as http:
            made = await make(http, by="of-admins")
            assert made["warnings"] == []
            for key in ("of-scores", "of-admins", made["key"]):
                assert await scored(http, key) == (200, "")
            for key in ("of-scores", made["key"]):
                refused = await http.get("/keys", headers=bearer(key))
                assert (refused.status_code, refused.json()["code"]) == (403, "scope_required")
            await http.delete(f"/keys/{made['id']}", headers=bearer("of-admins"))
            assert await scored(http, "of-scores") == (200, "")
            assert await scored(http, made["key"]) == (401, "bad_key")


async def test_no_log_line_holds_a_key(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with client() as http:
        made = await make(http)
        await scored(http, made["key"])
        await scored(http, made["key"][:-1] + "*")
        await http.delete(f"/keys/{made['id']}")
    assert made["id"] in caplog.text
    assert made["key"][len(made["prefix"]) :] not in caplog.text


ADMIN = ("/calibrate", "/calibrations", "/jobs", "/keys")


def guarded() -> list[tuple[str, str]]:
    """Return method and path of every operation of the contract that may need a key."""
    committed = Path(__file__).parents[2] / "clients" / "openapi.json"
    paths = json.loads(committed.read_text())["paths"]
    return [(m, path) for path, each in paths.items() for m, op in each.items() if "security" in op]


OPEN = {"/", "/health", "/healthz", "/readyz"}


def test_all_other_routes_may_need_a_key() -> None:
    committed = Path(__file__).parents[2] / "clients" / "openapi.json"
    paths = json.loads(committed.read_text())["paths"]
    assert {path for path, each in paths.items() if any("security" not in op for op in each.values())} == OPEN


def code_of(answer: httpx.Response) -> str:
    """Return the code of an error in either format; "" if the body is not JSON."""
    if "json" not in answer.headers.get("content-type", ""):
        return ""
    body = answer.json()
    inner = body.get("error", body) if isinstance(body, dict) else {}
    return str(inner.get("code", "")) if isinstance(inner, dict) else ""


@pytest.mark.parametrize(("method", "path"), guarded())
async def test_all_routes_accept_created_keys(client: Client, method: str, path: str) -> None:
    admins_only = f"/{path.split('/')[1]}" in ADMIN
    async with client(llm_url="http://127.0.0.1:9/v1") as http:
        score = await make(http)
        admin = await make(http, "admin")
        ended = await make(http, "admin", admin["key"])
        await http.delete(f"/keys/{ended['id']}", headers=bearer(admin["key"]))

        async def asked(**headers: str) -> str:
            json_ = {"json": {}} if method == "post" else {}
            answer = await http.request(
                method, path.replace("{", "").replace("}", ""), headers=headers, **json_
            )
            if path.startswith("/v1/") and answer.status_code in (401, 403):
                assert answer.json().keys() == {"error"}
            return code_of(answer)

        assert await asked() == "missing_key"
        refused = {"bad_key", "missing_key", "scope_required"}
        for sent in (bearer, lambda key: {"X-API-Key": key}):
            assert await asked(**sent("wrong")) == "bad_key"
            assert await asked(**sent(ended["key"])) == "bad_key"
            assert await asked(**sent(admin["key"])) not in refused
            by_score = await asked(**sent(score["key"]))
            assert (by_score == "scope_required") if admins_only else (by_score not in refused)


async def test_a_route_that_nobody_listed_needs_an_admin_key(tmp_path: Path) -> None:
    app = create_app(
        Settings(data_dir=tmp_path, admin_key="a-long-admin-key"), llm=FakeLLM(), embedder=FakeEmbedder()
    )
    app.add_api_route("/new/thing", lambda: "shown")
    async with in_process(app) as http:
        without = await http.get("/new/thing")
        with_key = await http.get("/new/thing", headers=bearer("a-long-admin-key"))
    assert (without.status_code, with_key.text) == (401, '"shown"')


@pytest.mark.parametrize("root", ["/docs", "/console", "/health", "/score"])
async def test_a_root_path_opens_no_route(tmp_path: Path, root: str) -> None:
    settings = Settings(data_dir=tmp_path, admin_key="a-long-admin-key", score_key="a-long-score-key")
    app = create_app(settings, llm=FakeLLM(), embedder=FakeEmbedder())
    async with in_process(app, root_path=root) as http:
        found = [(await http.get(f"{root}{path}")).status_code for path in ("/keys", "/metrics", "/healthz")]
        scored = await http.post(f"{root}/score", json=PROMPT, headers=bearer("a-long-score-key"))
    assert (found, scored.status_code) == ([401, 401, 200], 200)


async def test_a_line_feed_at_the_end_of_a_path_passes_no_limit(client: Client) -> None:
    async with client() as http:
        assert (await http.post("/score%0A", json=PROMPT)).status_code == 200
        counted = (await http.get("/metrics")).text
    assert 'eigencal_responses_total{kind="score",status="200"} 1.0' in counted
