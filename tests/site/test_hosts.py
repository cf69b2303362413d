"""The site asks no other host for anything: neither its pages, nor its styles, nor its scripts."""

import re

import pytest

from tests.support.built_site import Site

pytestmark = pytest.mark.site
ELSEWHERE = re.compile(r"^(?:[a-z]+:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"(?:url\(|@import)\s*[\"']?([^\"')\s;]+)")
IN_SCRIPTS = re.compile(r"[\"'`(](https?:)?//([\w.-]+\.[a-z]{2,})")
OTHER_LANGUAGES = "assets/javascripts/lunr/"  # splitters of words that a search in English never loads
# Hosts that the theme's script knows, and the mark on a page without which it never asks them.
KNOWN = {
    "api.github.com": 'data-md-component="source"',
    "gitlab.com": 'data-md-component="source"',
    "unpkg.com": 'class="mermaid"',
    "www.w3.org": None,  # names of XML, not addresses
}


def test_pages_load_nothing_from_elsewhere(site: Site) -> None:
    loaded = {(path, address) for path, page in site.pages.items() for address in page.loaded}
    assert len(loaded) > len(site.pages)
    assert [one for one in loaded if ELSEWHERE.match(one[1]) and not one[1].startswith("data:")] == []


def test_styles_load_nothing_from_elsewhere(site: Site) -> None:
    found = [
        (path, address)
        for path, text in site.texts(".css", ".html", ".svg")
        for address in IN_STYLES.findall(text)
        if ELSEWHERE.match(address)
    ]
    assert found == []


def test_scripts_know_hosts_that_no_page_makes_them_ask(site: Site) -> None:
    scripts = {path: text for path, text in site.texts(".js") if not path.startswith(OTHER_LANGUAGES)}
    assert len(scripts) >= 4
    assert '"lang":["en"]' in scripts["search/search_index.js"]
    named = {found[1] for text in scripts.values() for found in IN_SCRIPTS.findall(_code(text))}
    assert named <= KNOWN.keys()
    for path, text in site.texts(".html"):
        assert not [mark for host in named if (mark := KNOWN[host]) and mark in text], path


def _code(script: str) -> str:
    """Return a script without the search's index, which holds the words of the pages."""
    return "" if script.startswith("var __index") else script
