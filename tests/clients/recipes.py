"""The code of docs/recipes, as on the pages. The name of a block follows its language."""

import re
from pathlib import Path

from benchmarks.processes import ROOT
from tests.clients.environments import HERE, SCORE_KEY
from tests.support.openai_server import MODEL

PAGES = ROOT / "docs" / "recipes"
BLOCK = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> dict[str, str]:
    """Return the named blocks of code of all recipes, by name."""
    found = [block for page in sorted(PAGES.glob("*.md")) for block in BLOCK.findall(page.read_text("utf-8"))]
    named = dict(found)
    assert len(named) == len(found), "two blocks have the same name"
    return named


BLOCKS = blocks()


def filled_in(code: str, service: str, model: str = MODEL) -> str:
    """Return the code with the address, key and model of a test in place of the page's."""
    told = {"http://127.0.0.1:8000": service, "the-score-key": SCORE_KEY, "the-model": model}
    for said, meant in told.items():
        code = code.replace(said, meant)
    return code


def script(name: str, service: str, folder: Path) -> Path:
    """Write a block where its client can run. Node looks for packages in the script's folder and above."""
    path = folder / name
    path.write_text(filled_in(BLOCKS[name], service), encoding="utf-8")
    if path.suffix == ".mjs" and not (packages := folder / "node_modules").exists():
        packages.symlink_to(HERE / "node" / "node_modules")
    return path
