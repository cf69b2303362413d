"""The site is built without a warning, every page has a name, and each can be found."""

import pytest

from tests.support.built_site import ROOT, Site

pytestmark = pytest.mark.site
DOCS = ROOT / "docs"


def test_the_build_says_nothing_but_what_it_does(site: Site) -> None:
    lines = [line.partition("-")[2].strip() for line in site.printed.splitlines()]
    begins = ("Cleaning site directory", "Building documentation to directory", "Documentation built in")
    assert len(lines) == len(begins), site.printed
    for line, begin in zip(lines, begins, strict=True):
        assert line.startswith(begin), site.printed


def test_every_page_of_the_folder_is_on_the_site(site: Site) -> None:
    pages = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")}
    pages = {page.replace("README.html", "index.html") for page in pages}
    assert pages <= site.pages.keys()
    assert site.pages.keys() - pages >= {"changelog.html", "api/score.html", "api/errors.html"}


def test_every_page_has_a_title_of_its_own(site: Site) -> None:
    titles = {path: page.title.strip() for path, page in site.pages.items()}
    assert all(title and title != "Eigencal" for path, title in titles.items() if path != "index.html")
    assert len(set(titles.values())) == len(titles), sorted(titles.values())
    assert [path for path, page in site.pages.items() if len(page.headings) != 1] == []


def test_every_page_is_in_the_navigation(site: Site) -> None:
    for start in ("index.html", "decisions/0009-the-line-before-the-llm.html"):
        targets = [site.target(start, address) for address in site.pages[start].navigation]
        reached = {found[0] for found in targets if found}
        orphans = [path for path in site.pages if (site.folder / path).resolve() not in reached]
        assert orphans == [], f"not in the navigation of {start}"
