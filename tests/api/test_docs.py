"""The API documentation page loads nothing from other hosts."""

import re

import httpx2 as httpx

from tests.api.conftest import Client

TYPES = {"js": "javascript", "css": "text/css", "png": "image/png", "json": "application/json"}


async def test_all_files_of_the_page_are_served_locally(client: Client) -> None:
    async with client() as http:
        page = await http.get("/docs")
        named = re.findall(r"(?:src|href)=[\"']([^\"']+)|\burl: '([^']+)'", page.text)
        addresses = [httpx.URL("http://127.0.0.1/docs").join(a or b) for a, b in named]
        assert {url.path for url in addresses} == {
            "/docs/swagger-ui-bundle.js",
            "/docs/swagger-ui.css",
            "/docs/favicon.png",
            "/openapi.json",
        }
        for url in addresses:
            assert url.host == "127.0.0.1"
            served = await http.get(url)
            assert served.status_code == 200, url
            assert TYPES[url.path.rsplit(".", 1)[1]] in served.headers["content-type"]
        script = (await http.get("/docs/swagger-ui-bundle.js")).text
    assert "http" not in page.text
    assert "SwaggerUIBundle" in script and len(script) > 1_000_000


async def test_other_files_of_the_package_are_not_served(client: Client) -> None:
    async with client() as http:
        for name in ("redoc.standalone.js", "..%2Fcore.py", "none"):
            answer = await http.get(f"/docs/{name}")
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        wrong = await http.post("/docs/swagger-ui.css")
        paths = (await http.get("/openapi.json")).json()["paths"]
    assert wrong.status_code == 405 and "GET" in wrong.headers["allow"]
    assert not [path for path in paths if path.startswith("/docs")]
