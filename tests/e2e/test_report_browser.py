"""The report in a real Chromium: loading, console messages, display and printing. `make test-browser`."""

import io
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from lab.command import Components, Plan, evaluate
from service.llm.prompt import Sampling
from service.report.pages import render
from service.scoring.score import Serving
from tests.support.browser import Page, browser_page
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.reports import FEW, deciding_report, one_class_report, small_report
from tests.support.worlds import rows, write

pytestmark = pytest.mark.browser
CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "alone": small_report,
    "beside an active one": partial(small_report, with_active=True),
    "one class": partial(one_class_report, False),
    "with thresholds": deciding_report,
}
NARROW = 320  # CSS pixels; the widest table of a report scrolls here
# A right edge beyond the window: text or a plot is cut off, or the page scrolls sideways.
SPILLING = """
[...document.querySelectorAll('body *')].filter(e => !e.closest('svg *') && !e.closest('.scroll *'))
  .filter(e => e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.tagName + '.' + e.className)
"""
# The smallest letters of any plot, in CSS pixels as shown.
LETTERS = """
Math.min(...[...document.querySelectorAll('svg text')]
  .map(t => parseFloat(getComputedStyle(t).fontSize) * Math.hypot(t.getScreenCTM().a, t.getScreenCTM().b)))
"""
# Width and height as shown, and marks on the paper other than letters.
SIZES = """
[...document.querySelectorAll('svg')].map(s =>
  [s.clientWidth, s.clientHeight, s.querySelectorAll('path, use').length])
"""
# Letters outside their plot's frame.
CUT_OFF = """
[...document.querySelectorAll('svg text')].filter(t => {
  const a = t.getBoundingClientRect(), b = t.ownerSVGElement.getBoundingClientRect();
  return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
}).map(t => t.textContent)
"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser_page(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module", params=CASES)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unfolded(render(CASES[request.param]()), tmp_path_factory.mktemp("page"))


def unfolded(page: str, folder: Path) -> Path:
    """Save a page with all sections unfolded; `folded.html` next to it is the original."""
    (folder / "folded.html").write_text(page, encoding="utf-8")
    path = folder / "report.html"
    path.write_text(page.replace("<details>", "<details open>"), encoding="utf-8")
    return path


def test_summary_fits_one_screen(tab: Page, saved: Path) -> None:
    tab.resize(1200, 900)
    tab.open(saved.with_name("folded.html"))
    shown = tab.evaluate("document.body.innerText")
    assert (
        shown.index("How far off is it") < shown.index("What does it promise") < shown.index("How many ans")
    )
    assert tab.evaluate("document.querySelector('#plots').getBoundingClientRect().top") < 900


def test_report_loads_nothing_else_and_logs_no_errors(tab: Page, saved: Path) -> None:
    tab.resize(1200, 900)
    tab.open(saved)
    assert tab.requests() == [saved.as_uri()]
    assert tab.complaints() == []


def test_browser_blocks_scripts_and_resources(tab: Page, saved: Path, tmp_path: Path) -> None:
    page = saved.read_text(encoding="utf-8")
    evil = tmp_path / "evil.html"
    (tmp_path / "x.png").write_bytes(b"x")
    evil.write_text(page.replace("</body>", "<script>window.ran = 1</script><img src=x.png></body>"))
    tab.open(evil)
    assert tab.evaluate("window.ran === undefined")
    tab.until(lambda: len(tab.complaints()) >= 2)
    assert len(tab.complaints()) == 2


def test_every_plot_is_visible(tab: Page, saved: Path) -> None:
    tab.resize(1200, 900)
    tab.open(saved)
    sizes = tab.evaluate(SIZES)
    assert len(sizes) == (3 if tab.evaluate("document.body.innerText.includes('Is P(correct) cal')") else 1)
    assert all(width > 150 and height > 150 and marks > 3 for width, height, marks in sizes)


@pytest.mark.parametrize(("width", "letters"), [(390, 9), (768, 8), (1200, 8)])
def test_report_fits_every_width(tab: Page, saved: Path, width: int, letters: int) -> None:
    tab.resize(width, 844, phone=width < 500)
    tab.open(saved)
    assert tab.evaluate("innerWidth") == width
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.evaluate(SPILLING) == []
    assert tab.evaluate(CUT_OFF) == []
    assert tab.evaluate(LETTERS) >= letters


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluation")
    dev, test = (
        write(folder / f"{n}.jsonl", rows(count, seed=count)) for n, count in (("dev", 60), ("test", 90))
    )
    parts = Components(FakeLLM(), FakeEmbedder(16), Serving(8, Sampling(), Sampling()))
    evaluate(Plan(dev, test, folder / "out", resamples=FEW), parts)
    return unfolded((folder / "out" / "report.html").read_text("utf-8"), folder)


@pytest.mark.parametrize(("width", "letters"), [(390, 9), (1200, 9)])
def test_evaluation_report_fits_every_width(tab: Page, evaluated: Path, width: int, letters: int) -> None:
    tab.resize(width, 844, phone=width < 500)
    tab.open(evaluated)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.evaluate(LETTERS) >= letters
    assert tab.evaluate(CUT_OFF) == []
    assert tab.complaints() == []


def test_very_long_names_and_markup_names_are_harmless(tab: Page, tmp_path: Path) -> None:
    report = small_report()
    report["calibration"]["name"] = "<script>window.ran = 1</script>" + "x" * 500
    path = tmp_path / "long.html"
    path.write_text(render(report), encoding="utf-8")
    tab.resize(390, 844, phone=True)
    tab.open(path)
    assert tab.evaluate("document.querySelector('h1').textContent") == report["calibration"]["name"]
    assert tab.evaluate("document.documentElement.scrollWidth") == 390
    assert tab.evaluate("window.ran === undefined")


def test_a_table_that_scrolls_shows_where_there_is_more(tab: Page, tmp_path: Path) -> None:
    """A shadow at the clipped edge moves to the other edge at the end."""
    path = unfolded(render(deciding_report()), tmp_path)
    tab.resize(NARROW, 844, phone=True)
    tab.open(path)
    frame = "document.querySelector('.by-answers').closest('.scroll')"
    assert tab.evaluate(f"{frame}.scrollWidth > {frame}.clientWidth")
    place = tab.evaluate(f"(r => [r.left, r.right, r.top + scrollY])({frame}.getBoundingClientRect())")
    assert _darkness(tab.screenshot(), *place) == (False, True)
    tab.evaluate(f"{frame}.scrollLeft = {frame}.scrollWidth")
    assert _darkness(tab.screenshot(), *place) == (True, False)


def _darkness(picture: bytes, left: float, right: float, top: float) -> tuple[bool, bool]:
    """Return whether the paper is grey at the left and at the right edge of a frame, below its top."""
    shown = imread(io.BytesIO(picture))[:, :, :3]
    scale = shown.shape[1] / NARROW
    line = int((top + 4) * scale)  # between the frame and the letters of the caption
    places = [int((left + 2) * scale), int((right - 2) * scale)]
    return shown[line, places[0]].mean() < 0.9, shown[line, places[1]].mean() < 0.9


def test_page_is_not_blank_and_prints_on_a4(tab: Page, saved: Path) -> None:
    tab.resize(1200, 900)
    tab.open(saved)
    picture = tab.screenshot()
    tab.open(saved.with_name("folded.html"))  # folded sections are printed
    paper = tab.pdf()
    width, height = struct.unpack(">II", picture[16:24])
    assert width == 1200
    assert height > 3000
    assert len(picture) > 100_000
    assert paper.startswith(b"%PDF-")
    assert b"/MediaBox [0 0 594.95996 841.91998]" in paper or b"/MediaBox [0 0 595" in paper
    assert 3 <= paper.count(b"/Type /Page\n") <= 12
