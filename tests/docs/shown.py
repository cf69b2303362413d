"""JSON in the form of the documentation: shortened by `...`, over several lines, with other numbers."""

import json
import re
from functools import cache
from typing import Any

from benchmarks.processes import ROOT

STRING = r'"(?:[^"\\]|\\.)*"'
ELLIPSIS = re.compile(rf"({STRING})|\.\.\.")
HOLE = re.compile(r",\s*(?=[,\]}])|(?<=[\[{])\s*,")
MANY = 20  # holes of one block, at most: each pass closes those that do not touch


def parsed(shown: str) -> Any:
    """Return shortened JSON as a value without the parts replaced by `...`. Raises ValueError."""
    text = ELLIPSIS.sub(lambda result: result[1] or "", " ".join(shown.split("\n")))
    for _ in range(MANY):
        text, closed = HOLE.subn("", text)
        if not closed:
            break
    return json.loads(text)


def missing(shown: Any, real: Any, at: str = "$") -> list[str]:
    """Return the differences of a shown value from a real one: missing fields or entries, or another type.

    Values that are null today are not compared: a job shown while running may have ended.
    """
    if real is None:
        return []
    if isinstance(shown, dict):
        if not isinstance(real, dict):
            return [f"{at} is no object"]
        absent = [f"{at}.{name} is not there" for name in shown if name not in real]
        inner = [missing(shown[name], real[name], f"{at}.{name}") for name in shown if name in real]
        return [*absent, *(item for part in inner for item in part)]
    if isinstance(shown, list):
        if not isinstance(real, list):
            return [f"{at} is no list"]
        if shown and not real:
            return [f"{at} is empty"]
        return [item for entry in shown for item in missing(entry, real[0], f"{at}[]")]
    same = _kind(shown) == _kind(real)
    return [] if same else [f"{at} is shown as {shown!r} and is {real!r}"]


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else type(value).__name__


@cache
def contract_names() -> frozenset[str]:
    """Return the names of all fields of the contract, and of the parameters of its forms."""
    document = json.loads((ROOT / "clients" / "openapi.json").read_text(encoding="utf-8"))
    return frozenset(_names_below(document))


def _names_below(node: Any) -> set[str]:
    """Return the names of properties in schemas, and the keys of examples."""
    if isinstance(node, list):
        return {name for item in node for name in _names_below(item)}
    if not isinstance(node, dict):
        return set()
    own_names = {*node.get("properties", {})} | {
        name for key in ("example", "examples", "value") for name in keys_below(node.get(key))
    }
    return own_names | {name for item in node.values() for name in _names_below(item)}


def keys_below(value: Any) -> set[str]:
    """Return all keys of a value, at any depth."""
    if isinstance(value, list):
        return {name for item in value for name in keys_below(item)}
    if not isinstance(value, dict):
        return set()
    return set(value) | {name for item in value.values() for name in keys_below(item)}
