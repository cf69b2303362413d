"""The TypeScript client in a real Chromium: as its README says, behind the page's own origin."""

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx2 as httpx
import pytest

from tests.clients.environments import SCORE_KEY
from tests.clients.typescript import DIST, readme_blocks
from tests.support.browser import browser_page

pytestmark = pytest.mark.clients
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
PAGE = '<!doctype html><link rel="icon" href="data:,"><script type="module" src="/{script}"></script>'
# The README's examples: a page on another origin, a batch line by line, and a stream.
MORE = """
import * as eigencal from "/eigencal.js/index.js";
const client = new eigencal.Eigencal({ baseUrl: "/eigencal" });
const across = new eigencal.Eigencal({ baseUrl: "SERVICE", key: "KEY", maxRetries: 0 });
const told = {};
try { await across.score("question"); } catch (error) { told.across = [error.name, error.code]; }
try { await client.score({ samples: [] }); } catch (error) { told.bad = [error.name, error.status]; }
const moved = new eigencal.Eigencal({ baseUrl: "/moved" });
try { await moved.health(); } catch (error) { told.moved = error.message; }
told.batch = [];
for await (const item of client.scoreBatch(["one", "two"])) told.batch.push(item.result.answer);
told.chunks = "";
const model = (await client.models()).data[0].id;
const chat = { model, messages: [{ role: "user", content: "question" }], stream: true };
for await (const chunk of client.chat(chat)) told.chunks += chunk.choices[0]?.delta.content ?? "";
document.body.textContent = JSON.stringify(told);
"""


class Proxy(BaseHTTPRequestHandler):
    """Serves the pages and the client's files, and passes a path on to the service, with the key."""

    service: httpx.URL
    pages: dict[str, bytes]

    def do_GET(self) -> None:
        if self.path.startswith("/eigencal/"):
            return self.pass_on()
        if self.path.startswith("/eigencal.js/"):
            return self.give((DIST / Path(self.path).name).read_bytes())
        if self.path.startswith("/moved/"):
            return self.send_away()
        found = self.pages.get(self.path)
        return self.give(found) if found else self.send_error(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        self.pass_on()

    def give(self, content: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", TYPES[Path(self.path).suffix])
        self.end_headers()
        self.wfile.write(content)

    def send_away(self) -> None:
        self.send_response(HTTPStatus.TEMPORARY_REDIRECT)
        self.send_header("Location", self.path.replace("/moved/", "/eigencal/"))
        self.end_headers()

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        connection = http.client.HTTPConnection(self.service.host, self.service.port)
        headers = {"Authorization": f"Bearer {SCORE_KEY}", "X-Forwarded-For": self.client_address[0]}
        headers |= {
            "Content-Type": self.headers.get("Content-Type", ""),
            "Origin": self.headers.get("Origin", ""),
        }
        connection.request(self.command, self.path.removeprefix("/eigencal"), body, headers)
        answer = connection.getresponse()
        self.send_response(answer.status)
        for name in ("Content-Type", "X-Request-ID"):
            self.send_header(name, answer.headers.get(name, ""))
        self.end_headers()
        while piece := answer.read1():
            self.wfile.write(piece)
        connection.close()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named by the base class
        """Say nothing."""


@contextmanager
def behind_one_origin(service: str, scripts: dict[str, str]) -> Iterator[str]:
    """Serve the service, and each script with a page of its name; yield the origin."""
    pages = {f"/{name}": code.encode() for name, code in scripts.items()}
    pages |= {f"/{Path(name).stem}.html": PAGE.format(script=name).encode() for name in scripts}
    handler = type("Handler", (Proxy,), {"service": httpx.URL(service), "pages": pages})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_page_behind_one_origin_with_the_service(ours: str, tmp_path: Path) -> None:
    scripts = {
        "page.js": readme_blocks()["page.js"],
        "more.js": MORE.replace("SERVICE", ours).replace("KEY", SCORE_KEY),
    }
    with behind_one_origin(ours, scripts) as origin, browser_page(tmp_path) as page:
        page.visit(f"{origin}/page.html")
        page.until(lambda: "Berlin" in page.evaluate("document.body.textContent"))
        assert page.evaluate("document.body.textContent").startswith("Berlin 0.")
        assert not page.complaints()
        page.visit(f"{origin}/more.html")
        page.until(lambda: bool(page.evaluate("document.body.textContent")))
        told = page.evaluate("JSON.parse(document.body.textContent)")
        assert "redirects to an address that the browser does not tell" in told.pop("moved")
        assert told == {
            "across": ["ConnectionError", "connection_failed"],
            "bad": ["TooFewSamplesError", 422],
            "batch": ["Berlin", "Berlin"],
            "chunks": "Berlin",
        }
