"""What MkDocs calls while it builds the site: pages that are made, and a navigation that forgets none.

mkdocs.yml names this file. A line of the navigation that ends with a slash stands for all pages of a folder.
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
# The client first: it is what a reader looks for, and the names of its results stand in its signatures.
REFERENCE = """# Python client: reference

::: eigencal.Client

::: eigencal
    options:
      filters: ["!^_", "!^Client$"]

::: eigencal.types
"""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made of other files, then fill the navigation in."""
    for path, text in made_pages().items():
        files.append(File.generated(config, path, content=text))
    paths = [file.src_uri for file in files.documentation_pages()]
    config.nav = filled_in(config.nav, paths, set(named_in(config.nav)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to a client's README, as GitHub has them, to its page."""
    return to_client_pages(markdown, page.file.src_uri)


def to_client_pages(markdown: str, path: str) -> str:
    """Return a page's Markdown with its links to clients' READMEs as they are from its place on the site."""
    folder = posixpath.dirname(path) or "."
    return CLIENT_README.sub(
        lambda found: f"]({posixpath.relpath(f'clients/{found[1]}.md', folder)}", markdown
    )


def made_pages() -> dict[str, str]:
    """Return the Markdown of the pages that are not in docs/, by their path there."""
    document = json.loads((ROOT / "clients" / "openapi.json").read_text("utf-8"))
    pages = {f"api/{name}.md": text for name, text in ContractPages(document).pages().items()}
    pages["changelog.md"] = (ROOT / "CHANGELOG.md").read_text("utf-8")
    return pages | client_pages(ROOT / "clients")


def client_pages(folder: Path) -> dict[str, str]:
    """Return the README of each client, and the reference of the Python one, by its docstrings."""
    readmes = {
        f"clients/{readme.parent.name}.md": for_site(readme.read_text("utf-8"))
        for readme in sorted(folder.glob("*/README.md"))
    }
    return readmes | {"clients/reference.md": REFERENCE}


def for_site(readme: str) -> str:
    """Return a client's README with its links into docs/ as they are on the site."""
    return readme.replace("](../../docs/", "](../")


def named_in(nav: Any) -> list[str]:
    """Return every path that a navigation names."""
    if isinstance(nav, str):
        return [nav]
    return [path for one in (nav.values() if isinstance(nav, dict) else nav) for path in named_in(one)]


def filled_in(nav: list[Any], paths: list[str], named: set[str]) -> list[Any]:
    """Return a navigation with each folder replaced by its pages that are named nowhere, in order."""
    filled: list[Any] = []
    for one in nav:
        if isinstance(one, dict):
            title, inside = next(iter(one.items()))
            filled.append({title: filled_in(inside, paths, named) if isinstance(inside, list) else inside})
        elif one.endswith("/"):
            filled += [path for path in paths if path.startswith(one) and path not in named]
        else:
            filled.append(one)
    return filled
