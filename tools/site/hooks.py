"""Hooks of MkDocs that add generated pages and complete the navigation.

mkdocs.yml names this file. A navigation entry that ends with a slash stands for all pages of a folder.
"""

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from tools.site.contract_pages import ContractPages

ROOT = Path(__file__).parents[2]
CLIENT_README = re.compile(r"\]\((?:\.\./)+clients/(\w+)/README\.md")
# The client is first because readers look for it, and its signatures name the result types.
REFERENCE = """# Python client: reference

::: eigencal.Client

::: eigencal
    options:
      filters: ["!^_", "!^Client$"]

::: eigencal.types
"""


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages, then complete the navigation."""
    for path, text in made_pages().items():
        files.append(File.generated(config, path, content=text))
    paths = [file.src_uri for file in files.documentation_pages()]
    config.nav = filled_in(config.nav, paths, set(named_in(config.nav)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Redirect links to a client's README to its page on the site."""
    return to_client_pages(markdown, page.file.src_uri)


def to_client_pages(markdown: str, path: str) -> str:
    """Return a page's Markdown with links to clients' READMEs replaced by relative links on the site."""
    folder = posixpath.dirname(path) or "."
    return CLIENT_README.sub(
        lambda found: f"]({posixpath.relpath(f'clients/{found[1]}.md', folder)}", markdown
    )


def made_pages() -> dict[str, str]:
    """Return the Markdown of the generated pages by their path in docs/."""
    document = json.loads((ROOT / "clients" / "openapi.json").read_text("utf-8"))
    pages = {f"api/{name}.md": text for name, text in ContractPages(document).pages().items()}
    pages["index.md"] = home((ROOT / "README.md").read_text("utf-8"))
    pages["changelog.md"] = (ROOT / "CHANGELOG.md").read_text("utf-8")
    return pages | client_pages(ROOT / "clients")


def client_pages(folder: Path) -> dict[str, str]:
    """Return the page of each client's README, and the reference of the Python client."""
    readmes = {
        f"clients/{readme.parent.name}.md": for_site(readme.read_text("utf-8"))
        for readme in sorted(folder.glob("*/README.md"))
    }
    return readmes | {"clients/reference.md": REFERENCE}


def home(readme: str) -> str:
    """Return the README as the site's first page. Files that the site lacks are named without a link."""
    linked = readme.replace("](docs/", "](").replace("](clients/", "](../clients/")
    return re.sub(
        r"\[([^]]*)\]\((?:CONTRIBUTING\.md|SECURITY\.md|decisions|\.\./clients/openapi\.json)\)",
        r"\1",
        linked,
    )


def for_site(readme: str) -> str:
    """Return a client's README with links into docs/ replaced by links on the site."""
    return readme.replace("](../../docs/", "](../")


def named_in(nav: Any) -> list[str]:
    """Return all paths in a navigation."""
    if isinstance(nav, str):
        return [nav]
    return [path for item in (nav.values() if isinstance(nav, dict) else nav) for path in named_in(item)]


def filled_in(nav: list[Any], paths: list[str], named: set[str]) -> list[Any]:
    """Return a navigation with each folder replaced by its pages that have no other entry, in order."""
    filled: list[Any] = []
    for item in nav:
        if isinstance(item, dict):
            title, inside = next(iter(item.items()))
            filled.append({title: filled_in(inside, paths, named) if isinstance(inside, list) else inside})
        elif item.endswith("/"):
            filled += [path for path in paths if path.startswith(item) and path not in named]
        else:
            filled.append(item)
    return filled
