"""The files of an evaluation: report, results, figures; each written whole or not at all."""

import json
import tempfile
from pathlib import Path

from service.domain.study.model import Results


class OutFolderError(Exception):
    """Nothing can be written where the results are to go; the message says why, in one line."""


def make_folder(out: Path) -> None:
    """Make the folder of the results. Raises OutFolderError unless it can be written to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        what = "it is a file" if out.is_file() else error.strerror or type(error).__name__
        raise OutFolderError(f"--out: cannot write into the folder {out}: {what}.") from None


def write_results(out: Path, results: Results) -> None:
    """Write report.html, results.json, and every figure as SVG and CSV under figures/.

    What an evaluation of other files has left there is renamed, so that nothing is lost.
    """
    from service.report.evaluation.page import evaluation_figures, evaluation_tables, render_evaluation

    # Drawn before anything is touched: should this fail, the old results are still whole.
    figures = evaluation_figures(results)
    if _of_other_files(out, results):
        _set_aside(out)
    folder = out / "figures"
    folder.mkdir(exist_ok=True)
    for name, svg in figures.items():
        write_whole(folder / f"{name}.svg", svg)
    for name, rows in evaluation_tables(results).items():
        write_whole(folder / f"{name}.csv", rows)
    write_whole(
        out / "results.json", json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    )
    write_whole(out / "report.html", render_evaluation(results, figures))


def _of_other_files(out: Path, results: Results) -> bool:
    try:
        found = json.loads((out / "results.json").read_text(encoding="utf-8"))
        return bool(found["provenance"]["files"] != results["provenance"]["files"])
    except (OSError, ValueError, KeyError, TypeError):  # none there, or of a release that kept no provenance
        return False


def _set_aside(out: Path) -> None:
    """Rename results, report and figures: results-1.json and so on."""
    number = 1
    while (out / f"results-{number}.json").exists():
        number += 1
    for name in ("report.html", "figures", "results.json"):  # last what tells that it has not been done
        path = out / name
        if path.exists():
            path.rename(path.with_stem(f"{path.stem}-{number}"))


def write_whole(path: Path, text: str) -> None:
    """Write a text so that the file is the old one or the new one, never half of it."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
