"""The site in a real Chromium, over HTTP and as files: it asks nobody else, and its search finds things."""

import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.browser import PATIENCE_S, Page, browser_page
from tests.support.built_site import Site

pytestmark = [pytest.mark.site, pytest.mark.browser]
SHOWN = ("index.html", "concepts.html", "api/score.html", "method.html")
RESULTS = "document.querySelectorAll('.md-search-result__item a').length"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and says nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture(scope="module")
def served(site: Site) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site.folder)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join(PATIENCE_S)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser_page(tmp_path_factory.mktemp("profile")) as page:
        page.resize(1300, 900)
        yield page


@pytest.fixture(params=["served", "files"])
def start(request: pytest.FixtureRequest, site: Site) -> str:
    """The address of the site: of a server, or of the folder itself."""
    if request.param == "files":
        return f"{site.folder.as_uri()}/"
    address: str = request.getfixturevalue("served")
    return address


@pytest.mark.parametrize("name", SHOWN)
def test_a_page_asks_nobody_else(tab: Page, start: str, name: str) -> None:
    tab.visit(start + name)
    tab.until(lambda: bool(tab.evaluate("document.readyState === 'complete'")))
    asked = [url for url in tab.requests() if not url.startswith(("data:", "blob:"))]
    assert start + name in asked
    assert [url for url in asked if not url.startswith(start)] == []
    assert tab.complaints() == []


def test_search_finds_the_entropy_offline(tab: Page, start: str) -> None:
    tab.visit(f"{start}index.html")
    tab.evaluate("document.querySelector('[data-md-toggle=search]').click()")
    tab.evaluate(
        "const field = document.querySelector('.md-search__input'); field.focus();"
        "field.value = 'von Neumann entropy'; field.dispatchEvent(new Event('keyup', {bubbles: true}))"
    )
    tab.until(lambda: tab.evaluate(RESULTS) > 0)
    found = tab.evaluate("[...document.querySelectorAll('.md-search-result__item a')].map(a => a.href)")
    assert any("concepts.html" in address for address in found)
    asked = [url for url in tab.requests() if not url.startswith(("data:", "blob:"))]
    assert any("search" in Path(url).name for url in asked)
    assert [url for url in asked if not url.startswith(start) and url != "about:blank"] == []
