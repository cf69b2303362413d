"""Parsing of HTML pages."""

import re
from html import unescape
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree


class Elements(HTMLParser):
    """All elements of a page in order, as (tag, attributes)."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.all.append((tag, dict(attrs)))

    def named(self, *tags: str) -> list[tuple[str, dict[str, str | None]]]:
        return [element for element in self.all if element[0] in tags]


def words(page: str) -> str:
    """Return the text of a page or a part, with normalised white space."""
    body = page.split("</style>", 1)[-1]
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", body)))


def section(page: str, name: str) -> str:
    """Return the text of the section with this heading id."""
    [text] = re.findall(rf'<section[^>]*aria-labelledby="{name}">.*?</section>', page, re.DOTALL)
    return words(text)


def svgs(page: str) -> dict[str, ElementTree.Element]:
    """Return the plots by name."""
    elements = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
    return {svg.attrib["aria-labelledby"].split("-title")[0]: svg for svg in elements}


def check_self_contained(page: str) -> None:
    """Fail if the page loads an external resource or runs a script."""
    elements = Elements(page)
    assert not elements.named("script", "link", "img", "iframe", "object", "embed", "image", "form", "base")
    for tag, attributes in elements.all:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        for name in ("href", "src", "xlink:href", "action", "data", "style"):
            assert "//" not in (attributes.get(name) or ""), (tag, attributes)
    assert "@import" not in page
    assert re.findall(r"url\((?!#)", page) == []
    policies = [a["content"] for _, a in elements.named("meta") if a.get("http-equiv")]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


def check_ids(page: str, least: int) -> None:
    """Fail unless ids are unique and all used ids exist, at least `least` of them."""
    elements = Elements(page)
    ids = [a["id"] for _, a in elements.all if "id" in a]
    assert len(ids) == len(set(ids))
    used = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', page)
    used = [first or second for first, second in used]
    used += [i for _, a in elements.all for i in (a.get("aria-labelledby") or "").split()]
    assert len(used) >= least
    assert set(used) <= set(ids)
