"""The files of an evaluation: report, results, figures; each written whole or not at all."""

import json
from pathlib import Path

from service.domain.evaluation.model import Results


def write_results(out: Path, results: Results) -> None:
    """Write report.html, results.json, and every figure as SVG and CSV under figures/."""
    from service.report.evaluation import evaluation_figures, evaluation_tables, render_evaluation

    figures = evaluation_figures(results)
    folder = out / "figures"
    folder.mkdir(exist_ok=True)
    for name, svg in figures.items():
        _replace(folder / f"{name}.svg", svg)
    for name, rows in evaluation_tables(results).items():
        _replace(folder / f"{name}.csv", rows)
    _replace(out / "results.json", json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    _replace(out / "report.html", render_evaluation(results, figures))


def _replace(path: Path, text: str) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
