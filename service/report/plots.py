"""The plots of a calibration's report: numbers to inline SVG, one function each."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from service.report import drawing as diagrams
from service.report.drawing import (
    FIRST,
    GREY,
    LOOKS,
    NULL_A,
    NULL_B,
    PANEL,
    SECOND,
    WIDE,
    Plot,
    beside,
    draw,
    null_bar,
)
from service.report.model import (
    Band,
    Bin,
    NullPart,
    ParametersAt,
    RejectionCurve,
    Report,
    SamplesAt,
    ServedRow,
    TemperatureCurve,
)
from service.report.words import MAPS, MISSING, algorithm1_words, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
from itertools import groupby

from service.report.model import CorrectnessPart, PromiseAt, RiskAt
from service.report.words import share

FEWEST = 10  # answers left where an accuracy-rejection curve ends: fewer say nothing


def reliability(kind: str, name: str, bins: Sequence[Bin], found: str, note: str) -> str:
    """Return one reliability diagram, with its band where the bins have one.

    found: what the y axis shows; note: a line under the title.
    """
    points = "; ".join(f"{number(b['predicted'], 2)}: {number(b['observed'], 2)}" for b in bins)
    plot = Plot(f"{kind}-{name}", f"{MAPS[name]}: {found} against λmax. {note}", f"Bins: {points}.", PANEL)

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot(ylabel=found)
        diagrams.reliability(axes, name, bins, note, calibrated_lie_on_it=kind == "projection")

    return draw(plot, paint)


def algorithm1_bands(rows: Sequence[ServedRow]) -> str:
    """Return the ECE of Algorithm 1 of each map above the bands of its two nulls, a and b."""
    told = " ".join(algorithm1_words(row) for row in rows)
    plot = Plot("algorithm1-bands", "Algorithm 1 ECE beside both of its nulls", told, (WIDE[0], 3.6))

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot()
        for place, row in enumerate(rows):
            _ece_and_bands(axes, place, row)
        axes.set_yticks(range(len(rows)), [MAPS[r["map"]] for r in rows])
        axes.set(ylim=(len(rows) - 0.5, -0.6), xlim=(0, 1.1 * axes.get_xlim()[1]))
        axes.set_xlabel("ECE of Algorithm 1\na: references drawn; b: real ones, rescaled")

    return draw(plot, paint)


def _ece_and_bands(axes: "Axes", place: int, row: ServedRow) -> None:
    _named_bar(axes, place + 0.08, row["algorithm1_band"], "a", NULL_A)
    if "algorithm1_rescaled" in row:
        _named_bar(axes, place + 0.32, row["algorithm1_rescaled"], "b", NULL_B)
    ece, look = row["algorithm1_ece"], LOOKS[row["map"]]
    if ece is None:
        axes.text(0.01, place, MISSING, va="center")
        return
    axes.vlines(ece, place - 0.16, place + 0.42, color=look.colour, linewidth=1)
    axes.plot(ece, place - 0.16, color=look.colour, marker=look.marker, markersize=8, clip_on=False)
    axes.annotate(
        number(ece), (ece, place - 0.16), (7, 0), textcoords="offset points", va="center", weight="bold"
    )


def _named_bar(axes: "Axes", place: float, band: Band | NullPart, name: str, colour: str) -> None:
    null_bar(axes, place, band["low"], band["high"], colour)
    if band["high"] is not None:
        above: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 9, "color": GREY}
        axes.annotate(name, (band["high"], place), (4, 0), **above)


def rejection(curves: Sequence[RejectionCurve], size: int) -> str:
    """Return the accuracy of what is kept, out of `size` answers, against the share rejected."""
    curves = [_kept(curve, 1 - FEWEST / size) for curve in curves]
    told = "; ".join(f"{MAPS[c['map']]}: {_at_half(c)}" for c in curves)
    plot = Plot("rejection", "Accuracy of the kept answers against the share rejected", f"At half: {told}.")
    return draw(plot, lambda figure: diagrams.rejection(figure.add_subplot(), curves))


def _kept(curve: RejectionCurve, most: float) -> RejectionCurve:
    """Return the curve up to a share rejected; its first point always."""
    size = max(sum(share <= most for share in curve["rejected"]), 1)
    return {"map": curve["map"], "rejected": curve["rejected"][:size], "accuracy": curve["accuracy"][:size]}


def _at_half(curve: RejectionCurve) -> str:
    kept = [a for r, a in zip(curve["rejected"], curve["accuracy"], strict=True) if r >= 0.5]
    return number(kept[0] if kept else None)


def temperature(curve: TemperatureCurve) -> str:
    """Return risk and entropy of the paper's map against T, which meet at the optimum."""
    best, told = curve["optimum"], f"They meet at T = {number(curve['optimum'], 2)}."
    plot = Plot("temperature", "Risk and entropy against temperature", told)
    risk, entropy = ("risk", curve["risk"], FIRST), ("entropy", curve["entropy"], SECOND)

    def paint(figure: "Figure") -> None:
        diagrams.risk_and_entropy(figure.add_subplot(), curve["temperatures"], [risk], entropy, best)

    return draw(plot, paint)


def samples(sizes: Sequence[SamplesAt]) -> str:
    """Return the raw λmax by number of answers, with its spread within a prompt."""
    told = diagrams.samples_words(sizes)
    plot = Plot("samples", "Raw λmax by number of answers", told, (WIDE[0], 3.0))
    return draw(plot, lambda figure: diagrams.samples(figure.add_subplot(), sizes))


def parameters(table: Mapping[str, Sequence[float]]) -> str:
    """Return what `parameter_columns` returned, by number of answers."""
    x, columns = table["num_samples"], {name: y for name, y in table.items() if name != "num_samples"}
    told = f"From {x[0]} to {x[-1]} answers: "
    told += "; ".join(f"{name} from {number(y[0], 2)} to {number(y[-1], 2)}" for name, y in columns.items())
    plot = Plot("parameters", "Parameters by number of answers", f"{told}.", (WIDE[0], 1.9 * len(columns)))

    def paint(figure: "Figure") -> None:
        drawn = figure.subplots(len(columns), 1, sharex=True, squeeze=False)[:, 0]
        looks = (LOOKS["temperature"], LOOKS["depolarized"], LOOKS["evidence"])
        for axes, (name, y), look in zip(drawn, columns.items(), looks, strict=False):
            axes.plot(x, y, color=look.colour, marker=look.marker, linestyle=look.dashes, markersize=4.5)
            low, high = 1.25 * min(0, *y), 1.25 * max(0, *y)  # of these, a alone may be below 0
            axes.set_ylim(low, high if high > low else 1)
            beside(axes, x[-1], y[-1], number(y[-1], 2))
            axes.set_ylabel(name, rotation=0, weight="bold", labelpad=12)
            axes.set_xlim(min(x) - 0.5, max(x) * 1.1 + 0.3)
            axes.xaxis.get_major_locator().set_params(integer=True)
        drawn[-1].set_xlabel("answers per prompt")

    return draw(plot, paint)


def parameter_columns(report: Report) -> Mapping[str, Sequence[float]]:
    """Return the number of answers and T, with g where the map has one, and a and b of the evidence map."""
    if table := report.get("evidence_parameters"):
        return {
            "num_samples": [p["num_samples"] for p in table],
            "T": [p["temperature"] for p in table],
            "a": [p["evidence_intercept"] for p in table],
            "b": [p["evidence_slope"] for p in table],
        }
    return _plain_columns(report["parameters"])


def _plain_columns(table: Sequence[ParametersAt]) -> Mapping[str, Sequence[float]]:
    sizes: Sequence[float] = [p["num_samples"] for p in table]
    found = {"num_samples": sizes, "T": [p["temperature"] for p in table]}
    missing = [p["depolarization"] for p in table if p["depolarization"] is not None]
    return found | {"g": missing} if len(missing) == len(table) else found


# Figures of P(correct) in a report: how often it holds, and what thresholds on it let through.


def diagram(part: CorrectnessPart, method: str) -> str:
    """Return how often answers are right at each P(correct), in the look of the calibration's map."""
    bins = part["diagram"]
    points = "; ".join(f"{number(b['predicted'], 2)}: {number(b['observed'], 2)}" for b in bins)
    plot = Plot("p-correct", "Share of right answers against P(correct)", f"Bins: {points}.", (WIDE[0], 4.1))
    look = LOOKS[method]

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot(ylabel="share of right answers")
        diagrams.unit_square(axes, bins, "P(correct), mean of bin", "perfect")
        x, y = ([one[name] for one in bins] for name in ("predicted", "observed"))
        axes.plot(x, y, color=look.colour, marker=look.marker, linestyle=look.dashes, clip_on=False)

    return draw(plot, paint)


def curve(part: CorrectnessPart) -> str:
    """Return the error among the answers let through by coverage, its bound, and each target's threshold."""
    rows, kept = part["risk_coverage"], _kept_share(part["promises"])
    told = "; ".join(f"{name}: {share(at)} let through" for name, at, _ in kept) or "No target is reached"
    plot = Plot("risk-coverage", "Wrong ones among the answers let through", f"{told}.", (WIDE[0], 3.6))
    return draw(plot, lambda figure: _curve(figure.add_subplot(), rows, kept, part["confidence"]))


def _kept_share(promises: Sequence[PromiseAt]) -> list[tuple[str, float, float]]:
    """Return (targets, coverage, largest target) of each threshold; several targets may share one."""
    reached = [one for one in promises if one["threshold"] is not None]
    groups = [list(group) for _, group in groupby(reached, key=lambda one: one["threshold"])]
    return [
        (
            ", ".join(share(one["target_error"]) for one in group),
            group[0]["coverage"],
            group[0]["target_error"],
        )
        for group in groups
    ]


def _curve(
    axes: "Axes", rows: Sequence[RiskAt], kept: Sequence[tuple[str, float, float]], confidence: float
) -> None:
    x, errors, bounds = ([row[name] for row in rows] for name in ("coverage", "error", "bound"))
    axes.plot(x, errors, color="black", label="wrong, as counted")
    axes.plot(x, bounds, color=GREY, linestyle=(0, (4, 2)), label=f"at most, {share(confidence)} sure")
    for name, at, target in kept:
        axes.plot(at, target, color="#0072B2", marker="o", markersize=7, clip_on=False)
        above: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 9}
        axes.annotate(name, (at, target), (0, 8), **above)
    axes.set(xlim=(0, 1.1), ylim=(0, 1.02), xlabel="share of answers let through")
    axes.set_xticks(*diagrams.TICKS)
    axes.set_ylabel("share wrong among them")
    # Above the frame: within it, points and their labels may be anywhere.
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=9, borderpad=0)
