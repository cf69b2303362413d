"""README shows the commands that anyone has to know, and its picture is real."""

import re

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
