"""Navigation pages made from the JSON of the routes."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from service.admin.calibrations import CALIBRATION
from service.admin.health import PATHS
from service.report.pages import OPEN, POST, calibrations, home

NASTY = '<script>alert("x")</script> & {{ 7 * 7 }} \x00'
OFF: dict[str, Any] = {
    **CALIBRATION,
    "id": "cal_2",
    "name": " ",
    "active": False,
    "activated_at": None,
    "links": {k: v for k, v in CALIBRATION["links"].items() if k != "data"},
}


class Links(HTMLParser):
    """The tags of a page, and the targets of its links."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.to: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.to += [value or "" for name, value in attrs if tag == "a" and name == "href"]


def test_home_links_to_pages_for_people() -> None:
    page = home({"name": "Eigencal", "version": "1.2.3", "links": PATHS})
    assert Links(page).to == [f".{PATHS[name]}" for name in OPEN]
    assert all(f"POST {PATHS[name]}" in page for name in POST)
    assert "version 1.2.3" in page


def test_calibrations_show_the_active_one_and_link_to_reports() -> None:
    page = calibrations([CALIBRATION, OFF])
    first, second = re.findall(r"<section.*?</section>", page, re.DOTALL)
    assert "active</span> since 2026-11-21 07:08 UTC" in first
    assert "TriviaQA, November" in first
    assert "Not active" in second
    links = CALIBRATION["links"]
    assert Links(first).to == [f".{links[name]}" for name in ("report", "self", "data")]
    assert Links(second).to == [f".{links[name]}" for name in ("report", "self")]


def test_page_without_calibrations() -> None:
    assert "None yet" in calibrations([])


@pytest.mark.parametrize(
    "page",
    [
        home({"name": NASTY, "version": NASTY, "links": dict.fromkeys(PATHS, NASTY)}),
        calibrations(
            [{**CALIBRATION, "name": NASTY, "id": NASTY, "fingerprint": {"model": NASTY, "embedder": NASTY}}]
        ),
    ],
)
def test_all_texts_are_escaped_and_nothing_is_loaded(page: str) -> None:
    assert not Links(page).tags & {"script", "img", "iframe", "form", "object"}
    assert "\x00" not in page
    assert "49" not in page
    assert "http" not in page.replace('http-equiv="Content-Security-Policy"', "")
