"""README shows the commands that anyone has to know."""

import re

from benchmarks.processes import ROOT
from tests.docs.blocks import Block, blocks

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


def test_ci_begins_with_these_commands() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    whole = [line for line in script.partition("exit\nfi\n")[2].splitlines() if not line.startswith("#")]
    assert whole[0].split() == ["in_turn", "run", "test", "stop"]
    assert "`make stop`" in README
