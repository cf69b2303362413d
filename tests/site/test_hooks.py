"""What MkDocs is handed beside docs/: the navigation filled in, pages made of other files."""

from pathlib import Path

import pytest

from tools.site.hooks import client_pages, filled_in, for_site, made_pages, named_in, to_client_pages

pytestmark = pytest.mark.site


def test_a_folder_in_the_navigation_stands_for_its_pages() -> None:
    nav = [{"Home": "index.md"}, {"How": ["how/index.md", {"More": ["how/"]}, "api/"]}]
    paths = ["index.md", "how/index.md", "how/b.md", "how/c.md", "api/x.md", "else.md"]
    named = set(named_in(nav))
    assert named == {"index.md", "how/index.md", "how/", "api/"}
    assert filled_in(nav, paths, named) == [
        {"Home": "index.md"},
        {"How": ["how/index.md", {"More": ["how/b.md", "how/c.md"]}, "api/x.md"]},
    ]


def test_clients_have_their_pages(tmp_path: Path) -> None:
    for name in ("python", "typescript"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text(f"# {name}\n\n[how](../../docs/operating.md#keys)\n")
    pages = client_pages(tmp_path)
    assert list(pages) == ["clients/python.md", "clients/typescript.md", "clients/reference.md"]
    assert pages["clients/python.md"] == "# python\n\n[how](../operating.md#keys)\n"
    assert "::: eigencal.Client" in pages["clients/reference.md"]


def test_links_of_a_readme_lead_to_pages_of_the_site() -> None:
    assert (
        for_site("[a](../../docs/a.md) [b](https://b.example/docs/)")
        == "[a](../a.md) [b](https://b.example/docs/)"
    )


@pytest.mark.parametrize(
    ("path", "written", "on_the_site"),
    [
        ("a.md", "[a](../clients/python/README.md#errors)", "[a](clients/python.md#errors)"),
        ("how-to/a.md", "[a](../../clients/typescript/README.md)", "[a](../clients/typescript.md)"),
        ("a.md", "[a](../clients/openapi.json) [b](recipes/README.md)", None),
    ],
)
def test_links_to_readmes_lead_to_their_pages(path: str, written: str, on_the_site: str | None) -> None:
    assert to_client_pages(written, path) == (on_the_site or written)


def test_the_changelog_is_a_page() -> None:
    assert made_pages()["changelog.md"].startswith("# Changelog")
