"""/docs in a real Chromium shows all schemas correctly. `make test-browser`."""

from collections.abc import Iterator

import pytest

from service.scoring.request import ScoreRequest
from tests.support.browser import Page, browser_page
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.in_thread import serving_app
from tests.support.sqlite_store import SqliteStore

pytestmark = pytest.mark.browser
# Type shown on the page, by name of the schema.
TYPES = """
Object.fromEntries([...document.querySelectorAll('section.models .json-schema-2020-12')].map(s => [
  s.querySelector('.json-schema-2020-12__title')?.textContent,
  s.querySelector('.json-schema-2020-12__attribute--primary')?.textContent]))
"""
SCORE = "[id$=post_score_score_post]"
BODY = f"{SCORE} .opblock-section-request-body"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    parts = {"llm": FakeLLM(), "embedder": FakeEmbedder(8), "store": SqliteStore()}
    with serving_app(tmp_path_factory.mktemp("data"), **parts) as url:
        yield f"{url}/docs"


@pytest.fixture(scope="module")
def page(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser_page(tmp_path_factory.mktemp("profile")) as tab:
        tab.resize(1200, 900)
        tab.visit(address)
        shown(tab, "document.querySelectorAll('.opblock').length > 10")
        yield tab


def shown(tab: Page, condition: str) -> None:
    """Wait until the page, which is drawn by a script, satisfies a condition."""
    tab.until(lambda: bool(tab.evaluate(condition)))


def clicked(tab: Page, text: str, condition: str) -> None:
    """Click the first button of the request body with this text until the page satisfies a condition.

    The page redraws the request body after it has resolved the references. An earlier click has no effect.
    """
    button = f"[...document.querySelectorAll('{BODY} button')].find(b => b.textContent.trim() === '{text}')"
    shown(tab, f"{condition} || ({button}?.click(), false)")


def test_no_schema_is_shown_as_never(page: Page) -> None:
    types = page.evaluate(TYPES)
    assert {"ScoreRequest", "BatchRequest", "Score"} <= types.keys()
    assert all(kind.startswith("object") for kind in types.values()), types


def test_fields_of_a_score_request_are_described(page: Page) -> None:
    page.evaluate(f"document.querySelector('{SCORE} .opblock-summary-control').click()")
    text = f"(document.querySelector('{BODY}')?.innerText ?? '')"
    clicked(page, "Schema", f"{text}.includes('Expand all')")
    clicked(page, "Expand all", f"{text}.includes('A question. The service')")
    text = page.evaluate(text)
    assert "never" not in text
    for name in ScoreRequest.model_json_schema(by_alias=True)["properties"]:
        assert name in text
    assert page.complaints() == []
