"""Templates to pages; and the pages to find one's way by: the root of the service, and all calibrations."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.report import words

if TYPE_CHECKING:
    from jinja2 import Environment


TEMPLATES = Path(__file__).parent / "templates"
# What a person may want to open, and what is said of it; the rest is for programs.
OPEN = {
    "docs": "Every route, its fields and errors; try them out",
    "calibrations": "Calibrations, which of them are active, and their reports",
    "jobs": "The latest jobs (JSON), with links to what came of them",
    "ready": "Can prompts be scored? Store, embedder, LLM (JSON)",
    "metrics": "Prometheus metrics (text)",
    "openapi": "The contract (JSON)",
}
POST = {
    "score": "How uncertain is the LLM about a prompt?",
    "batch": "The same for many prompts",
    "calibrate": "Fit a calibration on labelled prompts",
    "evaluate": "Reproduce the experiments on labelled prompts",
}


def home(root: Mapping[str, Any]) -> str:
    """Return the page of the root path from its JSON: name, version, links. Every text is escaped."""
    links = root["links"]
    context = {
        **root,
        "open": [(links[name], name, said) for name, said in OPEN.items() if name in links],
        "post": [(links[name], said) for name, said in POST.items() if name in links],
    }
    return page("home.html", context)


def calibrations(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of all calibrations from their JSON, in its order. Every text is escaped."""
    return page("calibrations.html", {"calibrations": found})


def page(template: str, context: Mapping[str, Any]) -> str:
    """Return a page from its template, which extends `base.html`. Every text of the context is escaped."""
    return environment().get_template(template).render(context)


def environment() -> "Environment":
    """Return the templates: everything escaped, nothing undefined, control characters made visible."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Exactly str: Markup, a kind of str, is HTML already and passed as it is.
        finalize=lambda value: words.visible(value) if type(value) is str else value,
    )
    found.globals["style"] = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    found.filters.update(
        number=words.number, share=words.share, between=words.between, when=words.when, counted=words.count
    )
    return found
