"""The page of an evaluation: the figures of a report on a test file, plus the experiments."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from service.report.pages import figures_context, page
from service.report.words import LABELLED, count, fingerprint_rows, when

ANSWERS = {"file": "answers from the file", "model": "answers drawn by the model below"}
KINDS = {"prompt": "prompts", "messages": "conversations"}


def render_evaluation(results: Mapping[str, Any]) -> str:
    """Return the evaluation as one self-contained HTML page. Equal results give equal pages."""
    method, test = results["method"], results["test"]
    context = {
        **results,
        **figures_context(results, method, results["answers"]["recommended"]),
        "judged_on": count(test["used"], "prompt") + " of the test file",
        "right_by": LABELLED[test["correct_from"]],
        "accuracy": test["accuracy"],
        "eps": results["provenance"]["eps"],
        "origin": list(_origin(results["provenance"])),
        "labelled": LABELLED,
    }
    return page("evaluation.html", context, Path(__file__).parent)


def _origin(provenance: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each known part of the provenance."""
    for name, file in provenance["files"].items():
        parts = [file["name"] or "an upload", *([f"SHA-256 {file['sha256']}"] if file["sha256"] else [])]
        yield f"{name.capitalize()} file", ", ".join([*parts, ANSWERS[file["answers_from"]]])
    answers = provenance["answers"]
    if answers is None:
        yield "Language model", "not known: the answers came with the files"
    for kind, setup in (answers or {}).items():
        for name, value in fingerprint_rows(setup):
            yield f"{name} ({KINDS.get(kind, kind)})" if len(answers or ()) > 1 else name, value
    embedder = provenance["embedder"]
    how = f"revision {embedder['revision']}, d = {embedder['dimension']}, {embedder['precision']}"
    yield "Embedder", f"{embedder['name']} ({how})"
    yield "Made", f"{when(provenance['created_at'])} by Eigencal {provenance['version']}".rstrip()
