"""Pages to find one's way by: the root of the service, and all calibrations. No plots, no script."""

from collections.abc import Mapping, Sequence
from typing import Any

from service.report.page import TEMPLATES, environment

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
    return _page(
        "home.html",
        **root,
        open=[(links[name], name, said) for name, said in OPEN.items() if name in links],
        post=[(links[name], said) for name, said in POST.items() if name in links],
    )


def calibrations(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of all calibrations from their JSON, in its order. Every text is escaped."""
    return _page("calibrations.html", calibrations=found)


def _page(template: str, **context: Any) -> str:
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    return environment().get_template(template).render(style=style, **context)
