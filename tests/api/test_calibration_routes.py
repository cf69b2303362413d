"""The routes under /calibrations, with a store in a file."""

import pytest

from service.admin.calibrations import CalibrationOut
from service.admin.services import prefers_html
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

    async def test_get_one_calibration(self, world: World) -> None:
        made = calibration()
        await add(world.calibrations, made, {}, num_rows=7)
        async with world.client() as client:
            body = (await client.get(f"/calibrations/{made.id}")).json()
        seen = CalibrationOut.model_validate(body)
        assert [p.num_samples for p in seen.parameters] == [2, 3, 4, 5]
        assert (seen.temperature, seen.depolarization) == (seen.parameters[-1].temperature, 0.5)
        assert body["fingerprint"] == made.fingerprint.parts()
        assert (seen.rows, seen.active, seen.data_kept, seen.name) == (7, False, False, made.name)

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

    async def test_report_shows_the_currently_active_calibration(self, world: World) -> None:
        made, other, report = calibration(), calibration(), small_report()
        for calibration_ in (made, other):
            await add(world.calibrations, calibration_, report)
        async with world.client() as client:
            await client.post(f"/calibrations/{made.id}/activate")
            now = (await client.get(f"/calibrations/{made.id}/report")).json()["now"]
            assert now["active"]
            assert now["activated_at"]
            await client.post(f"/calibrations/{other.id}/activate")
            body = (await client.get(f"/calibrations/{made.id}/report")).json()
        assert body["now"] == {"active": False, "activated_at": None}
        assert body["decision"] == report["decision"]  # unchanged

    async def test_a_browser_gets_a_page_and_a_program_json(self, world: World) -> None:
        made = calibration()
        await add(world.calibrations, made, {})
        async with world.client() as client:
            page = await client.get("/calibrations", headers={"Accept": BROWSER})
            plain = [
                await client.get("/calibrations", headers={"Accept": a}) for a in ("*/*", "application/json")
            ]
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert made.id in page.text
        assert {response.headers["vary"] for response in (page, *plain)} == {"Accept"}
        assert all(
            response.headers["content-type"] == "application/json" and len(response.json()) == 1
            for response in plain
        )


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        ("*/*", False),
        ("", False),
        ("text/html", True),
        ("application/json", False),
        ("text/html, application/json", False),
        ("TEXT/HTML, */*;q=0.8", True),
    ],
)
async def test_accept_header_selects_html_or_json(accept: str, html: bool) -> None:
    assert prefers_html(accept) is html
