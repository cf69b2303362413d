"""README keeps to one screen or two, shows the commands that anyone has to know, and its picture is real."""

import re
from pathlib import Path

import httpx
import pytest

from benchmarks.processes import ROOT
from tests.docs.blocks import Block, blocks
from tests.docs.conftest import Demo
from tools.readme_picture import PICTURE, Figures, Panel, draw, figures, numbers_in, report_of

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = blocks("README.md")
MOST_LINES = 115
FOUR = 4
# Bins and counts are exact; figures may move in the third digit with the BLAS in use.
CLOSE = 0.005


def of(language: str, word: str) -> Block:
    [found] = [block for block in BLOCKS if block.language == language and word in block.code]
    return found


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES


def test_the_two_commands_are_shown_and_exist() -> None:
    shown = [line.split("#")[0].strip() for line in of("bash", "make").code.splitlines()]
    assert shown == ["make run", "make test"]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"run", "test"} <= set(targets)


def test_a_score_is_one_command_and_a_calibration_two() -> None:
    assert len(of("bash", "/score").code.splitlines()) == 1
    assert len(of("bash", "/calibrate").code.splitlines()) == 2


@pytest.mark.parametrize("package", ["openai", "eigencal"])
def test_a_client_takes_few_lines(package: str) -> None:
    lines = of("python", f"from {package}").code.splitlines()
    called = [line for line in lines if not line.startswith("from ")]
    assert len(called) < FOUR + 1
    assert lines[0].startswith(f"from {package} import ")


def test_the_picture_is_drawn_from_the_numbers_that_it_carries() -> None:
    svg = PICTURE.read_text(encoding="utf-8")
    assert draw(numbers_in(svg)) == svg
    assert f"]({PICTURE.relative_to(ROOT).as_posix()})" in README


def test_the_picture_loads_nothing() -> None:
    svg = PICTURE.read_text(encoding="utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|href|<script|<image", svg)


@pytest.mark.weights
def test_the_numbers_of_the_picture_are_those_of_the_demonstration(demo: Demo) -> None:
    with httpx.Client(base_url=demo.url, trust_env=False, timeout=60) as http:
        made = figures(report_of(http))
    kept = numbers_in(PICTURE.read_text(encoding="utf-8"))
    assert (made["rows"], made["method"]) == (kept["rows"], kept["method"])
    assert [one["count"] for one in made["raw"]["dots"]] == [one["count"] for one in kept["raw"]["dots"]]
    assert numbers(made) == pytest.approx(numbers(kept), abs=CLOSE)
    # The demonstration itself prints the two figures that the picture tells.
    for panel in (kept["raw"], kept["calibrated"]):
        assert f"{panel['ece']:.3f}" in demo.said


@pytest.mark.weights
def test_a_chat_with_the_demonstration_is_scored_in_time(demo: Demo) -> None:
    """README's drop-in prints a number: a newcomer has no other server than this one."""
    asked = [{"role": "user", "content": "What is the capital of Germany?"}]
    with httpx.Client(base_url=demo.url, trust_env=False, timeout=120) as http:
        body = {"model": http.get("/v1/models").json()["data"][0]["id"], "messages": asked}
        told = http.post("/v1/chat/completions", json=body).raise_for_status().json()["uncertainty"]
    assert told["status"] == "scored", told


def numbers(shown: Figures) -> list[float]:
    return [one for panel in (shown["raw"], shown["calibrated"]) for one in numbers_of(panel)]


def numbers_of(panel: Panel) -> list[float]:
    dots = [
        value
        for dot in panel["dots"]
        for value in (dot["predicted"], dot["observed"], dot["low"], dot["high"])
    ]
    return [panel["ece"], panel["predicted"], panel["observed"], *dots]


LINK = re.compile(r"\]\(([^)\s]+)\)")
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_within_the_tree_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in LINK.findall(text):
        path, _, anchor = target.partition("#")
        if ":" in path:  # another host
            continue
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name}: {target}"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{page.name}: {target}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings)
    return {re.sub(r"\s", "-", heading) for heading in plain}
