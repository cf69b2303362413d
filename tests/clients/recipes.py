"""The code of docs/recipes, as it stands on the pages: a block's name follows its language."""

import re
from pathlib import Path

from benchmarks.processes import ROOT
from tests.clients.environments import HERE, SCORE_KEY
from tests.support.openai_server import MODEL

PAGES = ROOT / "docs" / "recipes"
BLOCK = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> dict[str, str]:
    """Return the named blocks of code of a page, by name."""
    found = BLOCK.findall((PAGES / page).read_text(encoding="utf-8"))
    named = dict(found)
    assert len(named) == len(found), f"{page}: two blocks of one name"
    return named


def filled_in(code: str, service: str, model: str = MODEL) -> str:
    """Return the code with the address, key and model of a test in place of the page's."""
    told = {"http://127.0.0.1:8000": service, "the-score-key": SCORE_KEY, "the-model": model}
    for said, meant in told.items():
        code = code.replace(said, meant)
    return code


def script(page: str, name: str, service: str, folder: Path) -> Path:
    """Write a block where its client can run. Node looks for packages in the script's folder and above."""
    path = folder / name
    path.write_text(filled_in(blocks(page)[name], service), encoding="utf-8")
    if path.suffix == ".mjs" and not (packages := folder / "node_modules").exists():
        packages.symlink_to(HERE / "node" / "node_modules")
    return path
