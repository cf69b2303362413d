"""Our pages in a real Chromium, with the content security policies sent by the service."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.responses import HTMLResponse

from service.app import create_app
from service.report.pages import render
from service.settings import Settings
from tests.support.browser import Page, browser_page
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.in_thread import serving
from tests.support.reports import small_report
from tests.support.sqlite_store import SqliteStore

pytestmark = pytest.mark.browser
# Type shown by Swagger UI, by name of the schema.
TYPES = """
Object.fromEntries([...document.querySelectorAll('section.models .json-schema-2020-12')].map(s => [
  s.querySelector('.json-schema-2020-12__title')?.textContent,
  s.querySelector('.json-schema-2020-12__attribute--primary')?.textContent]))
"""


@pytest.fixture(scope="module")
def llm() -> FakeLLM:
    return FakeLLM()


@pytest.fixture(scope="module")
def url(llm: FakeLLM) -> Iterator[str]:
    """Run a service in a thread, with a report under /report."""
    app = create_app(Settings(), llm=llm, embedder=FakeEmbedder(), store=SqliteStore())
    page = render(small_report(with_active=True))
    app.add_api_route("/report", lambda: HTMLResponse(page))
    with serving(app) as result:
        yield result


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser_page(tmp_path_factory.mktemp("profile")) as page:
        yield page


def until(tab: Page, expression: str) -> None:
    """Wait until an expression is true on the page."""
    tab.until(lambda: bool(tab.evaluate(f"!!({expression})")))


def test_api_documentation_works_under_its_policy(tab: Page, url: str) -> None:
    tab.visit(f"{url}/docs")
    until(tab, "document.querySelectorAll('.opblock').length > 5")
    tab.evaluate("document.querySelector('#operations-health-healthz_healthz_get button').click()")
    try_out = "document.querySelector('.try-out__btn:not(.cancel)')"
    until(tab, f"document.querySelector('.execute') || ({try_out}?.click(), false)")
    tab.evaluate("document.querySelector('.execute').click()")
    until(tab, "document.querySelector('.live-responses-table .response .response-col_status')")
    assert "200" in tab.evaluate(
        "document.querySelector('.live-responses-table .response .response-col_status').textContent"
    )
    assert tab.complaints() == []
    assert all(request.startswith((url, "data:", "blob:")) for request in tab.requests())


def test_api_documentation_shows_all_schemas_as_objects(tab: Page, url: str) -> None:
    tab.visit(f"{url}/docs")
    until(tab, "document.querySelectorAll('.opblock').length > 10")
    types = tab.evaluate(TYPES)
    assert {"ScoreRequest", "BatchRequest", "Score"} <= types.keys()
    assert all(kind.startswith("object") for kind in types.values()), types


def test_a_report_works_under_its_policy(tab: Page, url: str) -> None:
    tab.visit(f"{url}/report")
    assert tab.complaints() == []
    assert tab.evaluate("getComputedStyle(document.body).margin") != "8px"  # its own style is in force
    assert tab.evaluate("document.querySelectorAll('svg').length") == 1


def test_our_pages_cannot_be_framed(tab: Page, url: str, tmp_path: Path) -> None:
    page = tmp_path / "frame.html"
    page.write_text(f"<iframe src={url}/docs></iframe>")
    tab.open(page)
    tab.until(lambda: any("frame" in str(complaint).lower() for complaint in tab.complaints()))


def test_foreign_page_cannot_score(tab: Page, url: str, llm: FakeLLM, tmp_path: Path) -> None:
    page = tmp_path / "evil.html"
    page.write_text("<p>")
    tab.open(page)
    for kind in ("undefined", "{'Content-Type': 'text/plain'}", "{'Content-Type': 'application/json'}"):
        sent = f"{{method: 'POST', mode: 'no-cors', headers: {kind}, body: '{{\"prompt\":\"p\"}}'}}"
        tab.call(
            "Runtime.evaluate",
            expression=f"fetch('{url}/score', {sent}).catch(String)",
            awaitPromise=True,
        )
    assert not llm.requests
