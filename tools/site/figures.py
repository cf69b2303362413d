"""The figures of docs/: drawn from the report of the calibration that `make run` leaves, and from its rows.

    python -m tools.site.figures http://127.0.0.1:8000    (make figures)

Without an address they are drawn again from docs/figures/report.json, which holds every number in them.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import httpx2 as httpx

from service.demo.data import RECORDED
from service.demo.tour import NAME
from service.report import plots
from service.report.plots import GREY, LOOKS, Plot, draw, paint_reliability
from service.report.words import number
from service.spectral.spectrum import DepolarizedMap

FOLDER = Path(__file__).parents[2] / "docs" / "figures"
NUMBERS = FOLDER / "report.json"
DIGITS = 6
# Rows of the bundled questions: all answers alike and right, alike and wrong, two camps, many.
SHOWN = ("everyday-103", "everyday-114", "everyday-128", "everyday-45")
POINTS_TO_PIXELS = 96 / 72


def fetch(http: httpx.Client) -> dict[str, Any]:
    """Return what the figures show: parts of the report of `make run`, and spectra of a few recorded rows."""
    listed = http.get("/calibrations").raise_for_status().json()
    calibration = next(one for one in listed if one["name"] == NAME)
    report = http.get(f"/calibrations/{calibration['id']}/report").raise_for_status().json()
    decided = report["correctness"]
    at_most = decided["by_num_samples"][-1]
    curves = {name: report["curves"][name] for name in ("temperature", "projection", "correctness")}
    rows = {row["id"]: row for row in recorded()}
    found = {
        "from": {name: report["calibration"]["fingerprint"][name] for name in ("model", "embedder")}
        | {"rows": report["data"]["rows"], "accuracy": report["data"]["accuracy"]},
        "dimension": report["calibration"]["fingerprint"]["embedder_dimension"],
        "method": report["calibration"]["method"],
        "fits": report["fits"],
        "served": report["served"],
        "curves": curves,
        "correctness": decided | {"by_num_samples": [at_most]},
        "spectra": [spectrum(http, rows[name]) for name in SHOWN],
    }
    rounded: dict[str, Any] = _rounded(found)
    return rounded


def recorded() -> list[dict[str, Any]]:
    """Return the bundled questions with the answers recorded."""
    return [json.loads(line) for line in RECORDED.read_text("utf-8").splitlines()]


def spectrum(http: httpx.Client, row: dict[str, Any]) -> dict[str, Any]:
    """Return a question with the raw eigenvalues of its recorded answers."""
    asked = {"samples": row["samples"], "calibration": "none", "return": ["spectrum"]}
    score = http.post("/score", json=asked).raise_for_status().json()
    return {"id": row["id"], "prompt": row["prompt"], "eigenvalues": score["spectrum"]["uncalibrated"]}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value


def figures(found: dict[str, Any]) -> dict[str, str]:
    """Return every figure as the text of an SVG file, by name. Equal numbers give equal bytes."""
    decided = found["correctness"]
    drawn = {
        "spectra": spectra(found),
        "projection": reliability(found, "projection", "share of the reference found"),
        "correctness": reliability(found, "correctness", "share of right answers"),
        "temperature": plots.temperature(found["curves"]["temperature"]),
        "p-correct": plots.p_correct(decided, found["method"]),
        "risk-coverage": plots.risk_coverage(decided),
    }
    return {name: as_file(svg) for name, svg in drawn.items()}


def reliability(found: dict[str, Any], kind: str, ylabel: str) -> str:
    """Return the diagrams of raw scores and of the map served, side by side."""
    maps = {"raw": "not calibrated", found["method"]: "calibrated, held-out questions"}
    curves = found["curves"][kind]
    told = "; ".join(
        f"{name}: "
        + ", ".join(f"{number(b['predicted'], 2)} {number(b['observed'], 2)}" for b in curves[name])
        for name in maps
    )
    plot = Plot(f"site-{kind}", f"{ylabel} against λmax, raw and calibrated", f"Bins: {told}.", (6.4, 3.5))

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, 2)
        for axes, (name, note) in zip(panels, maps.items(), strict=True):
            paint_reliability(axes, name, curves[name], note, to_diagonal=kind == "projection")
        panels[0].set_ylabel(ylabel)

    return draw(plot, paint)


def spectra(found: dict[str, Any]) -> str:
    """Return the largest eigenvalues of a few questions, raw and depolarized, as bars."""
    fit = found["fits"]["depolarized"]
    served = DepolarizedMap(fit["temperature"]["value"], fit["depolarization"]["value"])
    told = "; ".join(f"{one['prompt']} {number(one['eigenvalues'][0], 2)}" for one in found["spectra"])
    plot = Plot("site-spectra", "Spectra of four questions, raw and calibrated", told, (6.4, 4.6))

    def paint(figure: Any) -> None:
        panels = figure.subplots(2, 2, sharex=True, sharey=True)
        for axes, one in zip(panels.flat, found["spectra"], strict=True):
            raw = one["eigenvalues"]
            _bars(axes, raw, served.serve(raw, found["dimension"]).eigenvalues.tolist())
            axes.set_title(one["prompt"], fontsize=9)
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
    """Return an inline SVG as a file: with a size and a ground of its own, for pages that are dark."""
    width, height = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0]
    size = " ".join(
        f'{name}="{float(points) * POINTS_TO_PIXELS:.0f}"'
        for name, points in (("width", width), ("height", height))
    )
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    opened = svg.replace("<svg ", f"<svg {size} ", 1)
    return opened.replace("</desc>", f"</desc>{ground}", 1) + "\n"


def main(arguments: list[str]) -> None:
    """Fetch the numbers, if there is an address, and draw."""
    FOLDER.mkdir(exist_ok=True)
    if arguments:
        with httpx.Client(base_url=arguments[0], timeout=60) as http:
            NUMBERS.write_text(json.dumps(fetch(http), indent=1, ensure_ascii=False) + "\n", "utf-8")
    for name, svg in figures(json.loads(NUMBERS.read_text("utf-8"))).items():
        (FOLDER / f"{name}.svg").write_text(svg, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
