"""The README's picture: what a calibration does to the bundled questions, from the report of `make run`.

    python -m tools.readme_picture    after `make run`: writes docs/images/calibration.svg

The picture carries its numbers as JSON, so that a test can make them again and compare.
"""

import json
import sys
from pathlib import Path
from typing import Any, TypedDict

import httpx

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "calibration.svg"
TIMEOUT_S = 60
DIGITS = 3
WIDTH, HEIGHT, SIDE, TOP = 760, 420, 270, 80  # of the picture, of a panel, and where panels begin
LEFTS = (80, 450)
RED, BLUE, GREY, BAND = "#b3261e", "#1a56a8", "#5f6368", "#e4e6e9"
OPEN, CLOSE = "<metadata>", "</metadata>"


class Dot(TypedDict):
    """One bin of questions: mean lambda_max, mean share of the references, and its band under calibration."""

    predicted: float
    observed: float
    low: float
    high: float
    count: int


class Panel(TypedDict):
    """One map on questions that it was not fitted on. ece: mass-weighted gap between the two means."""

    ece: float
    predicted: float
    observed: float
    dots: list[Dot]


class Figures(TypedDict):
    """All numbers of the picture."""

    rows: int
    method: str
    raw: Panel
    calibrated: Panel


def figures(report: dict[str, Any]) -> Figures:
    """Return the numbers of the picture, rounded, from a calibration's report."""
    method = report["calibration"]["method"]
    served = {row["map"]: row for row in report["served"]}
    panels = {
        name: _panel(report["curves"]["projection"][name], served[name]["projection_ece"])
        for name in ("raw", method)
    }
    return {
        "rows": report["data"]["rows_full"],
        "method": method,
        "raw": panels["raw"],
        "calibrated": panels[method],
    }


def _panel(bins: list[dict[str, Any]], ece: float) -> Panel:
    count = sum(one["count"] for one in bins)
    means = {
        name: round(sum(one["count"] * one[name] for one in bins) / count, DIGITS)
        for name in ("predicted", "observed")
    }
    dots: list[Dot] = [
        {
            "predicted": round(one["predicted"], DIGITS),
            "observed": round(one["observed"], DIGITS),
            "low": round(max(one["band_low"], 0.0), DIGITS),
            "high": round(min(one["band_high"], 1.0), DIGITS),
            "count": one["count"],
        }
        for one in bins
    ]
    return {
        "ece": round(ece, DIGITS),
        "predicted": means["predicted"],
        "observed": means["observed"],
        "dots": dots,
    }


def numbers_in(svg: str) -> Figures:
    """Return the numbers that a picture carries."""
    found: Figures = json.loads(svg.partition(OPEN)[2].partition(CLOSE)[0])
    return found


def draw(shown: Figures) -> str:
    """Return the picture as SVG; equal numbers give equal text."""
    raw, after = shown["raw"], shown["calibrated"]
    told = (
        f"Before calibration the confidence of {shown['rows']} bundled questions is {raw['predicted']:.2f} "
        f"on average and {raw['observed']:.2f} is borne out: a mean gap of {raw['ece']:.3f}. "
        f"After it the gap is {after['ece']:.3f}."
    )
    style = (
        "text{font-family:system-ui,sans-serif;font-size:13px;fill:#202124}.s{font-size:12px;fill:#5f6368}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            f"<title>{told}</title>",
            f"{OPEN}{json.dumps(shown)}{CLOSE}",
            f"<style>{style}</style>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>',
            *_drawn(LEFTS[0], "Raw", raw, RED),
            *_drawn(LEFTS[1], "Calibrated, on questions held out", after, BLUE),
            "</svg>\n",
        ]
    )


def _drawn(left: int, title: str, panel: Panel, colour: str) -> list[str]:
    return [*_frame(left, title, panel), *_band(left, panel["dots"]), *_dots(left, panel["dots"], colour)]


def _frame(left: int, title: str, panel: Panel) -> list[str]:
    right, bottom = left + SIDE, TOP + SIDE
    said = f"{panel['predicted']:.2f} said, {panel['observed']:.2f} borne out; mean gap {panel['ece']:.3f}"
    ticks = [
        f'<text class="s" x="{_x(left, at):.1f}" y="{bottom + 18}" text-anchor="middle">{at:g}</text>'
        f'<text class="s" x="{left - 8}" y="{_y(at) + 4:.1f}" text-anchor="end">{at:g}</text>'
        for at in (0, 0.5, 1)
    ]
    return [
        f'<text x="{left}" y="36" font-weight="bold">{title}</text>',
        f'<text class="s" x="{left}" y="58">{said}</text>',
        f'<rect x="{left}" y="{TOP}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#9aa0a6"/>',
        *ticks,
        f'<text x="{left + SIDE / 2:g}" y="{bottom + 42}" text-anchor="middle">confidence λmax</text>',
        f'<text x="{left - 40}" y="{TOP + SIDE / 2:g}" text-anchor="middle" '
        f'transform="rotate(-90 {left - 40} {TOP + SIDE / 2:g})">borne out by accepted answers</text>',
        f'<line x1="{left}" y1="{bottom}" x2="{right}" y2="{TOP}" stroke="{GREY}" stroke-dasharray="4 3"/>',
    ]


def _band(left: int, dots: list[Dot]) -> list[str]:
    """Draw where the dots of calibrated scores lie 95 times of 100."""
    edge = [(dot["predicted"], dot["low"]) for dot in dots]
    edge += [(dot["predicted"], dot["high"]) for dot in reversed(dots)]
    points = " ".join(f"{_x(left, x):.1f},{_y(y):.1f}" for x, y in edge)
    return [f'<polygon points="{points}" fill="{BAND}" style="mix-blend-mode:multiply"/>']


def _dots(left: int, dots: list[Dot], colour: str) -> list[str]:
    places = [(_x(left, dot["predicted"]), _y(dot["observed"])) for dot in dots]
    return [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{colour}"/>' for x, y in places]


def _x(left: int, value: float) -> float:
    return left + SIDE * value


def _y(value: float) -> float:
    return TOP + SIDE * (1 - value)


def report_of(http: httpx.Client) -> dict[str, Any]:
    """Return the report of the calibration that `make run` makes. Raises LookupError where there is none."""
    named = [one["id"] for one in _json(http, "/calibrations") if one["active"]]
    if not named:
        raise LookupError("The service has no active calibration: make run")
    found: dict[str, Any] = _json(http, f"/calibrations/{named[-1]}/report")
    return found


def _json(http: httpx.Client, path: str) -> Any:
    return http.get(path, headers={"Accept": "application/json"}).raise_for_status().json()


def main() -> None:
    """Draw from the service that this environment's settings describe."""
    from service.cli import load_settings

    settings = load_settings()
    url = f"http://{settings.host}:{settings.port}"
    try:
        with httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False) as http:
            shown = figures(report_of(http))
    except (httpx.HTTPError, LookupError) as error:
        sys.exit(f"No picture: {error}")
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(shown), encoding="utf-8")


if __name__ == "__main__":
    main()
