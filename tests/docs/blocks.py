"""Code blocks of the documentation, fenced or indented, and the comments about running them.

A block is run, or checked, or excused by a comment right before it, which is invisible on the page:

    <!-- not run: it needs Docker -->                  excused, with the reason
    <!-- run by: tests/clients/test_recipes.py -->     run or checked by that test, which names the page
    <!-- before: JOB=$(latest job) -->                 shell to run first: prerequisites of the page
    <!-- goes on -->                                   Python that continues the page's Python block above
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from benchmarks.processes import ROOT

MARKER = re.compile(r"<!--\s*(not run|run by|before|goes on)(?::\s*(.*?))?\s*-->", re.DOTALL)
NESTED = re.compile(r"\s*(```|~~~)")
# Separates a block from the comment or block above; an enclosing list item does not.
TEXT = ("paragraph_open", "heading_open", "table_open", "hr")
SHELL = ("bash", "sh", "shell")
# Named blocks are run by these tests, which fail for an unknown name.
BY_NAME = {
    "docs/recipes/": "tests/clients/test_recipes.py",
    "clients/typescript/README.md": "tests/clients/test_typescript.py",
}
DATA = ("json", "jsonl", "csv")


@dataclass(frozen=True)
class Block:
    """One block. page: path from the root; line: number of its first line of code, from 1.

    language: "" if missing; name: the text after the language, as in recipes. follows: whether only white
    space separates it from the block above, so that it is the output of that block.
    """

    page: str
    line: int
    language: str
    code: str
    name: str = ""
    markers: dict[str, str] = field(default_factory=dict)
    follows: bool = False

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Return the checked pages by their paths from the root."""
    results = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("clients/*/README.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in results)


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page in their order."""
    return list(blocks_in(page, (ROOT / page).read_text(encoding="utf-8")))


def blocks_in(page: str, text: str, first_line: int = 0) -> Iterator[Block]:
    """Yield the blocks of Markdown; a fence in an indented block counts as a fence."""
    markers: dict[str, str] = {}
    just_before = False
    for token in MarkdownIt("commonmark").parse(text):
        if token.type == "html_block":
            markers |= {kind: argument or "" for kind, argument in MARKER.findall(token.content)}
        elif token.type in ("fence", "code_block"):
            yield from _found(page, token, markers, first_line, follows=just_before)
            markers, just_before = {}, True
        elif token.type in TEXT:
            markers, just_before = {}, False


def _found(
    page: str, token: Token, markers: dict[str, str], first_line: int, *, follows: bool
) -> Iterator[Block]:
    assert token.map
    line = first_line + token.map[0] + 1
    if token.type == "code_block" and NESTED.match(token.content):
        yield from blocks_in(page, token.content, line - 1)
        return
    fenced = token.type == "fence"
    language, _, name = token.info.strip().partition(" ") if fenced else ("", "", "")
    yield Block(page, line + fenced, language, token.content, name, markers, follows)


def verdict(block: Block) -> str:
    """Return "run", "checked", "excused", or an error."""
    if "not run" in block.markers:
        return "excused" if block.markers["not run"] else f"{block.where}: `not run` gives no reason"
    if "run by" in block.markers:
        return _elsewhere(block)
    if block.language in (*SHELL, "python") or by_name(block):
        return "run"
    if block.language in DATA:
        return "checked"
    kind = f"a block in {block.language!r}" if block.language else "a block that names no language"
    return (
        f"{block.where}: {kind} is neither run nor checked. Name its language after ``` (bash, python: run; "
        f"{', '.join(DATA)}: checked), or say why not in a comment before it: <!-- not run: why -->"
    )


def by_name(block: Block) -> bool:
    """Return True if a test that runs all named blocks of such pages runs this one."""
    tests = [test for page, test in BY_NAME.items() if block.page.startswith(page)]
    return bool(block.name) and any((ROOT / test).is_file() for test in tests)


def runs_here(block: Block) -> bool:
    """Return True if a block is run with its page."""
    is_runnable = block.language in (*SHELL, "python") and not by_name(block)
    return is_runnable and not {"not run", "run by"} & block.markers.keys()


def _elsewhere(block: Block) -> str:
    """Return "run" if the named test exists and mentions the page."""
    test = ROOT / block.markers["run by"]
    is_named = test.is_file() and _names(test, block.page)
    return "run" if is_named else f"{block.where}: {block.markers['run by']} does not name {block.page}"


def _names(test: Path, page: str) -> bool:
    return Path(page).name in test.read_text(encoding="utf-8")
