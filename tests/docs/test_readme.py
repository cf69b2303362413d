"""README shows the essential commands."""

import re

from benchmarks.processes import ROOT
from tests.docs.blocks import Block, blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = blocks("README.md")


def of(language: str, word: str) -> Block:
    [block_] = [block for block in BLOCKS if block.language == language and word in block.code]
    return block_


def test_readme_shows_two_existing_commands() -> None:
    shown = [line.split("#")[0].strip() for line in of("bash", "make run").code.splitlines()]
    assert shown == ["make run", "make test"]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"run", "test"} <= set(targets)


def test_ci_starts_with_the_commands_of_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    whole = [line for line in script.partition("exit\nfi\n")[2].splitlines() if not line.startswith("#")]
    assert whole[0].split() == ["in_turn", "run", "test", "stop"]
    assert "`make stop`" in README
