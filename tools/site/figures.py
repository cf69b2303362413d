"""Draw the figures of docs/ from the report and the rows of the calibration made by `make run`.

    python -m tools.site.figures http://127.0.0.1:8000    (make figures)

Without an address they are drawn again from docs/figures/report.json, which holds all their numbers.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import httpx2 as httpx

from demo.data import RECORDED
from demo.tour import NAME
from service.report import plots
from service.report.plots import GREY, LOOKS, Plot, draw, paint_reliability
from service.report.words import number
from service.spectral.spectrum import DepolarizedMap

FOLDER = Path(__file__).parents[2] / "docs" / "figures"
NUMBERS = FOLDER / "report.json"
DIGITS = 6
# Bundled questions with answers that are all alike and right, all alike and wrong, of two kinds, of many.
SHOWN = ("everyday-103", "everyday-114", "everyday-128", "everyday-45")
POINTS_TO_PIXELS = 96 / 72


def fetch(http: httpx.Client) -> dict[str, Any]:
    """Return the numbers of the figures: parts of the report of `make run`, and spectra of recorded rows."""
    listed = http.get("/calibrations").raise_for_status().json()
    calibration = next(calibration_ for calibration_ in listed if calibration_["name"] == NAME)
    report = http.get(f"/calibrations/{calibration['id']}/report").raise_for_status().json()
    correctness = report["correctness"]
    at_most = correctness["by_num_samples"][-1]
    curves = {name: report["curves"][name] for name in ("projection", "correctness")}
    rows = {row["id"]: row for row in recorded()}
    numbers = {
        "from": {name: report["calibration"]["fingerprint"][name] for name in ("model", "embedder")}
        | {"rows": report["data"]["rows"], "accuracy": report["data"]["accuracy"]},
        "dimension": report["calibration"]["fingerprint"]["embedder_dimension"],
        "method": report["calibration"]["method"],
        "fits": report["fits"],
        "served": report["served"],
        "curves": curves,
        "correctness": correctness | {"by_num_samples": [at_most]},
        "spectra": [spectrum(http, rows[name]) for name in SHOWN],
    }
    rounded: dict[str, Any] = _rounded(numbers)
    return rounded


def recorded() -> list[dict[str, Any]]:
    """Return the bundled questions with their recorded answers."""
    return [json.loads(line) for line in RECORDED.read_text("utf-8").splitlines()]


def spectrum(http: httpx.Client, row: dict[str, Any]) -> dict[str, Any]:
    """Return a question with the raw eigenvalues of its recorded answers."""
    body = {"samples": row["samples"], "calibration": "none", "return": ["spectrum"]}
    score = http.post("/score", json=body).raise_for_status().json()
    return {"id": row["id"], "prompt": row["prompt"], "eigenvalues": score["spectrum"]["uncalibrated"]}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def figures(numbers: dict[str, Any]) -> dict[str, str]:
    """Return the text of each figure's SVG file by name. Equal numbers give equal bytes."""
    correctness = numbers["correctness"]
    svg_by_name = {
        "spectra": spectra(numbers),
        "projection": reliability(numbers, "projection", "share of the reference found"),
        "correctness": reliability(numbers, "correctness", "share of right answers"),
        "p-correct": plots.p_correct(correctness, numbers["method"]),
        "risk-coverage": plots.risk_coverage(correctness),
    }
    return {name: as_file(svg) for name, svg in svg_by_name.items()}


def reliability(numbers: dict[str, Any], kind: str, ylabel: str) -> str:
    """Return the reliability diagrams of the raw scores and of the served map, side by side."""
    maps = {"raw": "not calibrated", numbers["method"]: "calibrated, held-out questions"}
    curves = numbers["curves"][kind]
    bins = "; ".join(
        f"{name}: "
        + ", ".join(f"{number(b['predicted'], 2)} {number(b['observed'], 2)}" for b in curves[name])
        for name in maps
    )
    plot = Plot(f"site-{kind}", f"{ylabel} against λmax, raw and calibrated", f"Bins: {bins}.", (6.4, 3.5))

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, 2)
        for axes, (name, note) in zip(panels, maps.items(), strict=True):
            paint_reliability(axes, name, curves[name], note, to_diagonal=kind == "projection")
        panels[0].set_ylabel(ylabel)

    return draw(plot, paint)


def spectra(numbers: dict[str, Any]) -> str:
    """Return the largest eigenvalues of a few questions, raw and depolarized, as bars."""
    fit = numbers["fits"]["depolarized"]
    served = DepolarizedMap(fit["temperature"], fit["depolarization"])
    description = "; ".join(
        f"{spectrum_['prompt']} {number(spectrum_['eigenvalues'][0], 2)}" for spectrum_ in numbers["spectra"]
    )
    plot = Plot("site-spectra", "Spectra of four questions, raw and calibrated", description, (6.4, 4.6))

    def paint(figure: Any) -> None:
        panels = figure.subplots(2, 2, sharex=True, sharey=True)
        for axes, spectrum_ in zip(panels.flat, numbers["spectra"], strict=True):
            raw = spectrum_["eigenvalues"]
            _bars(axes, raw, served.serve(raw, numbers["dimension"]).eigenvalues.tolist())
            axes.set_title(spectrum_["prompt"], fontsize=9)
        panels[0, 0].legend(frameon=False, loc="center right", fontsize=9)
        for axes in panels[1]:
            axes.set_xlabel("eigenvalue, largest first")

    return draw(plot, paint)


def _bars(axes: Any, raw: list[float], calibrated: list[float], most: int = 6) -> None:
    for shift, values, look, word in (
        (-0.2, raw, LOOKS["raw"], "raw"),
        (0.2, calibrated, LOOKS["depolarized"], "calibrated"),
    ):
        places = [place + 1 + shift for place in range(min(len(values), most))]
        axes.bar(places, values[:most], width=0.36, color=look.color, label=word)
    axes.annotate(
        f"λmax {number(raw[0], 2)} → {number(calibrated[0], 2)}",
        (6.4, 0.9),
        ha="right",
        color=GREY,
        fontsize=9,
    )
    axes.set(xlim=(0.4, most + 0.6), ylim=(0, 1.04))
    axes.set_xticks(range(1, most + 1))


def as_file(svg: str) -> str:
    """Return an inline SVG as a file, with a size, and a white background for dark pages."""
    width, height = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0]
    size = " ".join(
        f'{name}="{float(points) * POINTS_TO_PIXELS:.0f}"'
        for name, points in (("width", width), ("height", height))
    )
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    opened = svg.replace("<svg ", f"<svg {size} ", 1)
    return opened.replace("</desc>", f"</desc>{ground}", 1) + "\n"


def main(arguments: list[str]) -> None:
    """Fetch the numbers if an address is given, and draw the figures."""
    FOLDER.mkdir(exist_ok=True)
    if arguments:
        with httpx.Client(base_url=arguments[0], timeout=60) as http:
            NUMBERS.write_text(json.dumps(fetch(http), indent=1, ensure_ascii=False) + "\n", "utf-8")
    for name, svg in figures(json.loads(NUMBERS.read_text("utf-8"))).items():
        (FOLDER / f"{name}.svg").write_text(svg, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
