"""The console's page and files, and redirects of browsers to it."""

import httpx2 as httpx
import pytest

from service.console.routes import STATIC
from tests.api.conftest import Client
from tests.support.operator_world import BROWSER, NO_CALIBRATION

HTML = {"Accept": BROWSER}


async def test_page_and_its_files_are_served(client: Client) -> None:
    async with client() as http:
        page = await http.get("/console/")
        assert page.content == (STATIC / "index.html").read_bytes()
        assert page.headers["content-type"].startswith("text/html")
        for path in STATIC.iterdir():
            served = await http.get(f"/console/{path.name}")
            assert served.content == path.read_bytes()
            assert served.headers["etag"] and served.headers["last-modified"]
            assert served.headers["cache-control"] == "no-cache"
            known = {"If-None-Match": served.headers["etag"]}
            assert (await http.get(f"/console/{path.name}", headers=known)).status_code == 304
            if path.name == "app.js":
                assert served.headers["content-encoding"] == "gzip"
            head = await http.head(f"/console/{path.name}")
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-length"] == str(path.stat().st_size)


async def test_policy_allows_only_own_files(client: Client) -> None:
    async with client() as http:
        for path in ("/console/", "/console/index.html"):
            policy = (await http.get(path)).headers["content-security-policy"]
            assert "script-src 'self';" in policy and "style-src 'self';" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize("name", ["none", "%2e%2e", "..%2froutes.py", "%00", "static"])
async def test_other_files_are_not_served(client: Client, name: str) -> None:
    async with client() as http:
        answer = await http.get(f"/console/{name}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_console_is_not_in_the_contract(client: Client) -> None:
    async with client() as http:
        contract = (await http.get("/openapi.json")).text
    assert '"/console' not in contract and "SignIn" not in contract


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/console", "/proxied/console/"),
        ("/", "/proxied/console/"),
        ("/calibrations", "/proxied/console/#/calibrations"),
    ],
)
async def test_browsers_are_redirected_below_the_prefix_of_a_proxy(
    client: Client, path: str, target: str
) -> None:
    async with client() as http:
        for method in ("GET", "HEAD") if path != "/calibrations" else ("GET",):
            moved = await http.request(method, path, headers=HTML)
            assert moved.status_code == 303
            assert str(httpx.URL(f"/proxied{path}").join(moved.headers["location"])) == target


@pytest.mark.parametrize("key", ["", "wrong"])
async def test_browser_without_a_valid_key_is_led_to_the_sign_in(client: Client, key: str) -> None:
    path = f"/calibrations/{NO_CALIBRATION}/report?a=1&b=%C3%A4"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with client(admin_key="of-admins") as http:
        moved = await http.get(path, headers=HTML | headers)
        assert moved.status_code == 303
        assert moved.headers["location"] == (
            f"../../console/#/sign-in?next=%2Fcalibrations%2F{NO_CALIBRATION}%2Freport%3Fa%3D1%26b%3D%25C3%25A4"
        )
        for accept in ("*/*", "application/json", "text/html, application/json"):
            assert (await http.get(path, headers={"Accept": accept} | headers)).status_code == 401
        assert (await http.post("/calibrate", headers=HTML | headers)).status_code == 401
        with_key = await http.get(path, headers=HTML | {"Authorization": "Bearer of-admins"})
        assert with_key.status_code == 404
