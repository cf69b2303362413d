"""Keys, methods and schemas of the operator's routes."""

import json

import pytest

from service.http.keys import Keys
from service.http.openapi import Problem, document
from service.jobs.model import (
    CalibrateForm,
    CalibrateRequest,
    CorrectionsRequest,
)
from tests.support.keys import MemoryKeys
from tests.support.operator_world import NO_CALIBRATION, NO_JOB, World, problem

ROUTES = [
    ("POST", "/calibrate"),
    ("DELETE", f"/calibrations/{NO_CALIBRATION}/data"),
]


class TestKeys:
    @pytest.mark.parametrize(("method", "path"), ROUTES)
    async def test_every_route_needs_the_admin_key_once_it_is_set(
        self, world: World, method: str, path: str
    ) -> None:
        world.app.state.keys = Keys(MemoryKeys(), admin="schlüssel", score="s")
        async with world.client() as client:
            missing = await client.request(method, path)
            problem(missing, 401, "missing_key")
            assert missing.headers["www-authenticate"] == "Bearer"
            for sent in ("Basic eDp5", "Bearer", "Bearer  "):
                problem(
                    await client.request(method, path, headers={"Authorization": sent}), 401, "missing_key"
                )
            bad = await client.request(method, path, headers={"Authorization": "Bearer schlussel"})
            problem(bad, 401, "bad_key")
            scored = await client.request(method, path, headers={"Authorization": "Bearer s"})
            problem(scored, 403, "scope_required")
            key = {"Authorization": "bearer schlüssel".encode()}
            assert (await client.request(method, path, headers=key)).status_code not in (401, 403)

    @pytest.mark.parametrize(("method", "path"), ROUTES)
    async def test_without_a_key_every_route_is_for_this_machine_alone(
        self, world: World, method: str, path: str
    ) -> None:
        async with world.client(peer="192.0.2.1") as client:
            problem(await client.request(method, path), 403, "scope_required")
        async with world.client() as client:
            assert (await client.request(method, path)).status_code not in (401, 403)

    @pytest.mark.parametrize(
        ("peer", "host"),
        [("127.0.0.1", "127.0.0.1:8000"), ("::1", "[::1]:8000"), ("::ffff:127.0.0.1", "LOCALHOST")],
    )
    async def test_all_loopback_addresses_are_local(self, world: World, peer: str, host: str) -> None:
        async with world.client(peer=peer) as client:
            assert (await client.get("/jobs", headers={"Host": host})).status_code == 200
            own = {"Host": host, "Origin": f"http://{host}"}
            assert (await client.get("/jobs", headers=own)).status_code == 200

    @pytest.mark.parametrize(
        "headers",
        [
            {"Host": "attacker.example"},
            {"Host": ""},
            {"Host": "127.0.0.1.attacker.example"},
            {"Origin": "https://attacker.example"},
            {"Origin": "null"},
            {"X-Forwarded-For": "192.0.2.1"},
            {"Forwarded": "for=192.0.2.1"},
            {"X-Real-IP": "127.0.0.1"},
            {"X-Forwarded-Host": "service.example"},
            {"Via": "1.1 proxy"},
        ],
    )
    async def test_a_proxy_or_a_browser_page_on_this_machine_is_no_caller_from_it(
        self, world: World, headers: dict[str, str]
    ) -> None:
        async with world.client() as client:
            problem(await client.get("/jobs", headers=headers), 403, "scope_required")


async def test_wrong_method_lists_the_allowed_methods(world: World) -> None:
    async with world.client() as client:
        response = await client.put(f"/jobs/{NO_JOB}")
    problem(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "DELETE, GET"


async def test_openapi_document_contains_all_used_schemas(world: World) -> None:
    bodies = [CalibrateRequest, CalibrateForm, CorrectionsRequest, Problem]
    made = document(world.app, bodies)
    text = json.dumps(made)
    used = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert {"Problem", "CalibrateRequest"} <= used <= made["components"]["schemas"].keys()
    assert "bearer" in made["components"]["securitySchemes"]
    operations = [op for path in made["paths"].values() for op in path.values()]
    assert len(operations) > 5
    assert all(
        op["security"] == [{}, {"bearer": []}] and {"401", "403", "503"} <= set(op["responses"])
        for op in operations
    )
    body = made["paths"]["/calibrate"]["post"]["requestBody"]["content"]
    assert set(body) == {"multipart/form-data", "application/json"}
