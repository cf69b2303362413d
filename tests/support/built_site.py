"""The built documentation site: its pages, links and resources."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[2]
# Attributes with resources that a browser fetches without a click; `link` only with these kinds.
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}
LOADED_LINKS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "manifest"}
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


@dataclass
class Html(HTMLParser):
    """One page, parsed."""

    path: Path
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    navigation: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)
    title: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[tuple[str, str]] = []
        self.feed(self.path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag not in VOID:
            self._open.append((tag, attributes.get("class", "")))
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag in LOADS and attributes.get(LOADS[tag]):
            self.loaded.append(attributes[LOADS[tag]])
        self.loaded += [part.split()[0] for part in attributes.get("srcset", "").split(",") if part.strip()]
        if tag == "link" and LOADED_LINKS & set(attributes.get("rel", "").split()):
            self.loaded.append(attributes["href"])
        elif tag in ("a", "link") and "href" in attributes:
            self.links.append(attributes["href"])
            if any(name == "nav" for name, _ in self._open):
                self.navigation.append(attributes["href"])
        if self.in_content:
            self.tags.append(tag)
            if tag == "h1":
                self.headings.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        inside = [name for name, _ in self._open]
        if "title" in inside and "svg" not in inside:
            self.title += data
        if "h1" in inside and self.headings:
            self.headings[-1] += data

    @property
    def in_content(self) -> bool:
        """Whether the parser is inside the page's own text."""
        return any(name == "article" for name, _ in self._open)

    @property
    def everything(self) -> list[str]:
        """Return all links and resources."""
        return self.links + self.loaded


@dataclass
class Site:
    """The folder of a built site, and the output of the build."""

    folder: Path
    printed: str

    @cached_property
    def pages(self) -> dict[str, Html]:
        """Return all pages by their path in the site, except the 404 page."""
        files = sorted(self.folder.rglob("*.html"))
        return {p.relative_to(self.folder).as_posix(): Html(p) for p in files if p.name != "404.html"}

    def target(self, page: str, address: str) -> tuple[Path, str] | None:
        """Return the file and the anchor of an address on a page; None for external addresses."""
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            return None
        file = (self.folder / page).parent / unquote(parts.path) if parts.path else self.folder / page
        return (file / "index.html" if file.is_dir() else file).resolve(), unquote(parts.fragment)

    def texts(self, *endings: str) -> Iterator[tuple[str, str]]:
        """Yield path and text of each file with one of these suffixes."""
        for path in sorted(self.folder.rglob("*")):
            if path.suffix in endings:
                yield path.relative_to(self.folder).as_posix(), path.read_text("utf-8")
