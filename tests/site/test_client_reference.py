"""The reference of the Python client has every public name, and every call of the client with a sentence."""

import ast
import re

import pytest

from tests.support.built_site import ROOT, Site

pytestmark = pytest.mark.site
PACKAGE = ROOT / "clients" / "python" / "src" / "eigencal"
PAGE = "clients/reference.html"


def public_names() -> list[str]:
    """Return the names that the package exports, except its version."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    (listed,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return [name for name in ast.literal_eval(listed) if not name.startswith("_")]


def calls() -> list[str]:
    """Return the public methods of the client that waits: those of all classes that it is made of."""
    trees = [ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")]
    classes = {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}
    parts, waiting = [], ["Client"]
    while waiting:
        parts.append(classes[waiting.pop()])
        waiting += [base.id for base in parts[-1].bases if isinstance(base, ast.Name) and base.id in classes]
    names = {node.name for part in parts for node in part.body if isinstance(node, ast.FunctionDef)}
    return sorted(name for name in names if not name.startswith("_"))


def test_every_public_name_is_there(site: Site) -> None:
    assert "Client" in public_names()
    assert [name for name in public_names() if f"eigencal.{name}" not in site.pages[PAGE].ids] == []


def test_every_call_is_there_with_a_sentence(site: Site) -> None:
    assert {"score", "score_batch", "calibrate", "chat", "create_key"} <= set(calls())
    text = (site.folder / PAGE).read_text("utf-8")
    for name in calls():
        _, _, below = text.partition(f'id="eigencal.Client.{name}"')
        told = re.search(r'<div class="doc doc-contents[^>]*>\s*<p>(.+?)</p>', below, re.DOTALL)
        assert told and len(told[1]) > 10, name
