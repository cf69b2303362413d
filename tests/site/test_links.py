"""No link of the site is dead: every href, src and anchor is followed; on GitHub the same Markdown holds."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.support.built_site import ROOT, Site

pytestmark = pytest.mark.site
DOCS = ROOT / "docs"
MARKDOWN = MarkdownIt("commonmark").enable("table")
PAGES = sorted(DOCS.rglob("*.md"))
ON_GITHUB = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("clients/*/README.md")), *PAGES]


def test_every_link_and_anchor_leads_somewhere(site: Site) -> None:
    dead, followed = [], 0
    for path, page in site.pages.items():
        for address in page.everything:
            found = site.target(path, address)
            if found is None:
                continue
            followed += 1
            file, anchor = found
            if not file.is_file() or (anchor and anchor not in ids_of(site, file)):
                dead.append(f"{path}: {address}")
    assert dead == []
    assert followed


def ids_of(site: Site, file: Path) -> set[str]:
    """Return the anchors of a page; those of the theme's own links to its top count."""
    return set(site.pages[file.relative_to(site.folder.resolve()).as_posix()].ids)


def test_no_id_stands_twice_on_a_page(site: Site) -> None:
    for path, page in site.pages.items():
        assert len(page.ids) == len(set(page.ids)), path


def tokens(path: Path) -> Iterator[Token]:
    """Yield all tokens of a page as GitHub reads it, those inside lines, too."""
    for token in MARKDOWN.parse(path.read_text("utf-8")):
        yield token
        yield from token.children or ()


def slugs(path: Path) -> set[str]:
    """Return the anchors that GitHub gives to a page's headings."""
    found = MARKDOWN.parse(path.read_text("utf-8"))
    words = [found[n + 1].children for n, token in enumerate(found) if token.type == "heading_open"]
    texts = ["".join(child.content for child in children or ()) for children in words]
    return {re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-") for text in texts}


@pytest.mark.parametrize("path", ON_GITHUB, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_hold_on_github(path: Path) -> None:
    for token in tokens(path):
        address = token.attrGet("href") if token.type == "link_open" else token.attrGet("src")
        if not address or re.match(r"[a-z]+:", str(address)):
            continue
        file, _, anchor = str(address).partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), address
        assert not anchor or anchor in slugs(target), address


# Both readers of Markdown must agree: the site shows a malformed list as one paragraph.
COUNTED = {
    "bullet_list_open": "ul",
    "ordered_list_open": "ol",
    "list_item_open": "li",
    "table_open": "table",
    "tr_open": "tr",
    "em_open": "em",
    "strong_open": "strong",
    "image": "img",
}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_the_site_shows_what_github_shows(path: Path, site: Site) -> None:
    there = [COUNTED[token.type] for token in tokens(path) if token.type in COUNTED]
    name = path.relative_to(DOCS).with_suffix(".html").as_posix().replace("README.html", "index.html")
    here = site.pages[name].tags
    footnotes = len(re.findall(r"^\[\^", path.read_text("utf-8"), re.MULTILINE))
    for tag in set(COUNTED.values()):
        # The site sets footnotes as an ordered list; GitHub's reader here does not know them.
        more = footnotes if tag == "li" else (footnotes > 0 if tag == "ol" else 0)
        assert here.count(tag) == there.count(tag) + more, tag
