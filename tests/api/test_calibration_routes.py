"""The routes under /calibrations, with a store in a file."""

import pytest

from tests.support.calibrations import add, calibration, rows
from tests.support.operator_world import BROWSER, NO_CALIBRATION, World, problem, upload
from tests.support.reports import small_report


class TestCalibrations:
    async def test_list_activate_and_reactivate(self, world: World) -> None:
        older, newer = calibration(), calibration()
        async with world.client() as client:
            for each in (older, newer):
                await add(world.calibrations, each, {})
            assert [c["id"] for c in (await client.get("/calibrations")).json()] == [newer.id, older.id]
            assert (await client.get("/calibrations/active")).json() == []
            for each in (newer, older):
                response = await client.post(f"/calibrations/{each.id}/activate")
                assert (response.status_code, response.json()["active"]) == (200, True)
                active = (await client.get("/calibrations/active")).json()
                assert [c["id"] for c in active] == [each.id]

    @pytest.mark.parametrize("calibration_id", [NO_CALIBRATION, "cal_none", "%00"])
    @pytest.mark.parametrize(
        ("method", "rest"),
        [("GET", ""), ("POST", "/activate"), ("GET", "/data"), ("DELETE", "/data"), ("GET", "/report")],
    )
    async def test_unknown_calibration_is_404(
        self, world: World, calibration_id: str, method: str, rest: str
    ) -> None:
        async with world.client() as client:
            response = await client.request(method, f"/calibrations/{calibration_id}{rest}")
            problem(response, 404, "not_found")

    @pytest.mark.parametrize("logprobs", [None, (-1.25, 0.005)])
    async def test_exported_data_can_be_uploaded_again_and_deleted(
        self, world: World, logprobs: tuple[float, ...] | None
    ) -> None:
        made, kept = calibration(), list(rows(samples=("a", ""), logprobs=logprobs))
        await world.store.fitted(made, {}, kept)
        path = f"/calibrations/{made.id}/data"
        async with world.client() as client:
            exported = await client.get(path)
            assert exported.headers["content-type"] == "application/x-ndjson"
            assert f"{made.id}.jsonl" in exported.headers["content-disposition"]
            again = await client.post("/calibrate", files=upload(exported.content))
            assert await world.store.rows_of(again.json()["id"]) == kept
            assert (await client.delete(path)).status_code == 204
            assert (await client.delete(path)).status_code == 204
            problem(await client.get(path), 404, "not_found")
            assert (await client.get(f"/calibrations/{made.id}")).json()["data_kept"] is False

    async def test_the_report_is_json_or_a_page(self, world: World) -> None:
        made, report = calibration(), small_report() | {"version": 7}
        await add(world.calibrations, made, report)
        path = f"/calibrations/{made.id}/report"
        async with world.client() as client:
            response = await client.get(path)
            now = {"active": False, "activated_at": None}
            assert response.json() == {**report, "now": now, "verdicts": None}
            assert response.headers["vary"] == "Accept"
            page = await client.get(path, headers={"Accept": "text/html,application/xml;q=0.9,*/*;q=0.8"})
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            assert page.text == "<html>7</html>"
            assert page.headers["x-frame-options"] == "SAMEORIGIN"
            assert "frame-ancestors 'self'" in page.headers["content-security-policy"]
            assert "frame-ancestors 'none'" in response.headers["content-security-policy"]

    async def test_a_browser_is_redirected_and_a_program_gets_json(self, world: World) -> None:
        made = calibration()
        await add(world.calibrations, made, {})
        async with world.client() as client:
            page = await client.get("/calibrations", headers={"Accept": BROWSER})
            plain = [
                await client.get("/calibrations", headers={"Accept": a}) for a in ("*/*", "application/json")
            ]
        assert (page.status_code, page.headers["location"]) == (303, "console/#/calibrations")
        assert {response.headers["vary"] for response in (page, *plain)} == {"Accept"}
        assert all(
            response.headers["content-type"] == "application/json" and len(response.json()) == 1
            for response in plain
        )


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("*/*", 200),
        ("", 200),
        ("text/html", 303),
        ("application/json", 200),
        ("text/html, application/json", 200),
        ("TEXT/HTML, */*;q=0.8", 303),
    ],
)
async def test_accept_header_selects_html_or_json(world: World, accept: str, status: int) -> None:
    async with world.client() as client:
        assert (await client.get("/calibrations", headers={"Accept": accept})).status_code == status
