"""README shows the commands that anyone has to know, and its picture is real."""

import re
from pathlib import Path

import pytest

from benchmarks.processes import ROOT
from tests.docs.blocks import Block, blocks
from tools.readme_picture import PICTURE, draw, numbers_in

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = blocks("README.md")


def of(language: str, word: str) -> Block:
    [found] = [block for block in BLOCKS if block.language == language and word in block.code]
    return found


def test_the_two_commands_are_shown_and_exist() -> None:
    shown = [line.split("#")[0].strip() for line in of("bash", "make").code.splitlines()]
    assert shown == ["make run", "make test"]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"run", "test"} <= set(targets)


def test_the_picture_is_drawn_from_the_numbers_that_it_carries() -> None:
    svg = PICTURE.read_text(encoding="utf-8")
    assert draw(numbers_in(svg)) == svg
    assert f"]({PICTURE.relative_to(ROOT).as_posix()})" in README


def test_the_picture_loads_nothing() -> None:
    svg = PICTURE.read_text(encoding="utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|href|<script|<image", svg)


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
