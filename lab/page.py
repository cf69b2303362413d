"""The page of an evaluation: the figures of a report on a test file, plus the experiments."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lab.figures import correctness, diagram, figures, reliability
from lab.maps import compare, null_words
from lab.rejection import MIN_KEPT
from service.report.pages import figures_context, page
from service.report.words import LABELLED, count, fingerprint_rows, number, when

ANSWERS = {"file": "answers from the file", "model": "answers drawn by the model below"}
KINDS = {"prompt": "prompts", "messages": "conversations"}


def render_evaluation(results: Mapping[str, Any]) -> str:
    """Return the evaluation as one self-contained HTML page. Equal results give equal pages."""
    method, test = results["method"], results["test"]
    drawn = figures(results)
    context = {
        **results,
        **figures_context(results, method, results["answers"]["recommended"]),
        "lines": compare(results["served"]),
        "projections": _projections(results),
        "judged_on": count(test["used"], "prompt") + " of the test file",
        "right_by": LABELLED[test["correct_from"]],
        "accuracy": test["accuracy"],
        "eps": results["provenance"]["eps"],
        "origin": list(_origin(results["provenance"])),
        "clusters": list(_diagrams(results)),
        "correctness": [
            correctness(row["map"], results["curves"]["correctness"][row["map"]], _auroc(row))
            for row in results["served"]
        ],
        "paper": list(_paper(results)),
        "sensitivity": [
            {**row, "null_drawn": null_words(row["drawn"]), "null_rescaled": null_words(row["rescaled"])}
            for row in results["sensitivity"]
        ],
        "experiments": {
            name: svg
            for name, svg in drawn.items()
            if name in ("convergence", "constant_predictor", "co_minimised", "similarity")
        },
        "rejection": drawn["rejection"],
        "min_kept": MIN_KEPT,
        "labelled": LABELLED,
    }
    return page("evaluation.html", context, Path(__file__).parent)


def _projections(results: Mapping[str, Any]) -> list[str]:
    """Return the projection diagrams as SVG, one per map. They contain no text from callers."""
    notes = {row["map"]: f"projection ECE {number(row['projection_ece'])}" for row in results["served"]}
    return [
        reliability("projection", name, bins, "share of the reference", notes[name], to_diagonal=True)
        for name, bins in results["projection"].items()
    ]


def _auroc(row: Mapping[str, Any]) -> str:
    return f"AUROC {number(row['auroc_lambda_max']['value'])}"


def _diagrams(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the diagram of Algorithm 1 of each map as SVG; nothing if no cluster has two members."""
    rows = results["algorithm1"]
    if any(row["bins"] for row in rows):
        yield from (diagram("algorithm1", row) for row in rows)


def _paper(results: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the line of each map in the table of Algorithm 1, the naive diagram and Cal_S."""
    errors = (results["calibration_error"] or {"by_map": {}})["by_map"]
    for rows in zip(results["algorithm1"], results["naive"], strict=True):
        cells = [
            {"ece": row["ece"], "drawn": null_words(row["drawn"]), "rescaled": null_words(row["rescaled"])}
            for row in rows
        ]
        yield {"map": rows[0]["map"], "cells": cells, "cal_s": errors.get(rows[0]["map"])}


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
