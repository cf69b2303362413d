"""The figures of an evaluation as SVG, and its tables as Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from service.report.plots import GREY, LOOKS, PANEL, Plot, draw, look_line, paint_bins, points_of
from service.report.words import MAPS, between, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEASURES = {"cal_s": ("Cal_S", "#0072B2", "solid"), "risk": ("risk", "#D55E00", (0, (5, 1.8)))} | {
    "eigenvalue_ece": ("eigenvalue ECE", "#000000", (0, (1, 1.2)))
}


T_TICKS = (0.1, 0.25, 0.5, 1, 2, 4, 10, 30)
HEAD_ROOM = 2.2  # the y axis ends at this multiple of the lowest risk; higher risks would hide the rest


def figures(results: Mapping[str, Any]) -> dict[str, str]:
    """Return the SVG of each figure by name. A figure that cannot be computed is left out."""
    curves = results["curves"]
    drawn = {
        "convergence": _convergence(results["convergence"]),
        "constant_predictor": _constant_predictor(results["constant_predictor"]),
        "temperature": _temperature(curves["temperature"]),
        "rejection": _rejection(curves["rejection"]),
    }
    if results["calibration_error"] is not None:
        drawn["co_minimised"] = _co_minimised(results["calibration_error"])
    if results["similarity"] is not None:
        drawn["similarity"] = _similarity(results["similarity"])
    for name, svg in _diagrams(results):
        drawn[name] = svg
    return drawn


def _rejection(curves: Sequence[Mapping[str, Any]]) -> str:
    """Return the plot of accuracy among the kept answers against the share rejected.

    A grey line marks the accuracy of all answers.
    """
    halves = "; ".join(f"{MAPS[curve['map']]}: {_at_half(curve)}" for curve in curves)
    plot = Plot("rejection", "Accuracy of the kept answers against the share rejected", f"At half: {halves}.")

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot(ylabel="share right among the kept")
        for place, curve in enumerate(curves):
            # Curves may coincide: wide lines below and alternating markers keep all of them visible.
            style = {"linewidth": 3.2 - 0.6 * place, "markevery": (2 * place, 8), "label": MAPS[curve["map"]]}
            look_line(axes, LOOKS[curve["map"]], curve["rejected"], curve["accuracy"], **style)
        axes.axhline(curves[0]["accuracy"][0], color=GREY, linewidth=0.9, zorder=1.5, clip_on=False)
        top = min(1.02, max(1.35 * axes.get_ylim()[1], 0.1))
        axes.set(xlim=(0, max(curves[0]["rejected"][-1], 0.1)), ylim=(0, top))
        axes.set_xlabel("share rejected, least certain first")
        axes.legend(loc="upper left", frameon=False, handlelength=3.6, fontsize=9.5)

    return draw(plot, paint)


def _at_half(curve: Mapping[str, Any]) -> str:
    kept = [a for r, a in zip(curve["rejected"], curve["accuracy"], strict=True) if r >= 0.5]
    return number(kept[0] if kept else None)


def _temperature(curve: Mapping[str, Any]) -> str:
    """Return the plot of risk and entropy of the paper's map against T. They meet at the optimum."""
    best, x = curve["optimum"], curve["temperatures"]
    words = f"They meet at T = {number(best, 2)}."
    plot = Plot("temperature", "Risk and entropy against temperature", words)

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot(ylabel="nats", xlabel="temperature T (log scale)")
        axes.plot(x, curve["risk"], color="#D55E00", linestyle="solid", label="risk")
        axes.plot(x, curve["entropy"], color="#0072B2", linestyle=(0, (5, 1.8)), label="entropy")
        axes.set(xscale="log", xlim=(x[0], x[-1]), ylim=(0, HEAD_ROOM * max(min(curve["risk"]), 0.1)))
        axes.set_xticks(T_TICKS, [f"{t:g}" for t in T_TICKS])
        axes.set_xticks([], minor=True)
        axes.legend(frameon=False, loc="best")  # the steep part of the risk depends on the fit
        circle: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": "black"}
        axes.axvline(best, color=GREY, linewidth=0.9, linestyle=":")
        axes.plot(best, min(curve["risk"]), marker="o", markersize=9, **circle)
        axes.set_title(f"fit: T = {number(best, 2)}", fontsize=9.5)

    return draw(plot, paint)


def _diagrams(results: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the reliability diagrams of each map: projection, correctness, Algorithm 1, naive."""
    for name, bins in results["projection"].items():
        svg = reliability("projection", name, bins, "share of the reference", "", to_diagonal=True)
        yield f"projection-{name}", svg
    for name, bins in results["curves"]["correctness"].items():
        yield f"correctness-{name}", correctness(name, bins, "")
    for kind in ("algorithm1", "naive"):
        for row in results[kind]:
            if row["bins"]:
                yield f"{kind}-{row['map']}", diagram(kind, row)


def reliability(
    kind: str,
    map_name: str,
    bins: Sequence[Mapping[str, Any]],
    ylabel: str,
    note: str,
    *,
    to_diagonal: bool,
) -> str:
    """Return one reliability diagram of a map, over the band of its null.

    kind: prefix of its ids. note: a line under the title. to_diagonal: True if a calibrated map lies on the
    diagonal.
    """
    title = f"{MAPS[map_name]}: {ylabel} against λmax. {note}"
    plot = Plot(f"{kind}-{map_name}", title, points_of(bins), PANEL)

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot(ylabel=ylabel)
        paint_bins(axes, map_name, bins, "λmax served, mean of bin", "perfect" if to_diagonal else "equal")
        axes.set_title(f"{MAPS[map_name]}\n", loc="left")
        axes.text(0, 1.03, note, transform=axes.transAxes, fontsize=9.5)

    return draw(plot, paint)


def correctness(name: str, bins: Sequence[Mapping[str, Any]], note: str) -> str:
    """Return the diagram of the share of right answers by a map's lambda_max. note: under the title."""
    return reliability("correctness", name, bins, "share of right answers", note, to_diagonal=False)


def diagram(kind: str, row: Mapping[str, Any]) -> str:
    """Return a diagram of Algorithm 1. kind: prefix of its ids."""
    note = f"ECE {number(row['ece'])}"
    return reliability(kind, row["map"], row["bins"], "target of the clusters", note, to_diagonal=False)


def _convergence(points: Sequence[Mapping[str, float]]) -> str:
    words = "; ".join(f"{point['num_samples']}: {number(point['mean'])}" for point in points)
    plot = Plot("convergence", "Mean raw λmax against the number of answers", f"{words}.")

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot(xlabel="answers", ylabel="raw λmax, mean of the prompts")
        x, mean, std = ([p[name] for p in points] for name in ("num_samples", "mean", "deviation"))
        axes.errorbar(x, mean, std, color="black", marker="o", capsize=3)
        axes.set(ylim=(0, 1))

    return draw(plot, paint)


def _constant_predictor(part: Mapping[str, Any]) -> str:
    best = part["optimum"]
    words = f"The risk is lowest at T = {number(best['value'], 3)} ({between(best)})."
    plot = Plot("constant", "Risk and entropy of the mean reference against temperature", words)

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot(xlabel="temperature T (log scale)", ylabel="nats")
        x = part["temperatures"]
        axes.plot(x, part["risk"], color="#D55E00", label="risk")
        axes.plot(x, part["entropy"], color="#0072B2", linestyle=(0, (5, 1.8)), label="entropy")
        axes.axvline(1.0, color=GREY, linewidth=0.9, linestyle=":")
        _temperatures(axes, x, (0.25, 0.5, 1, 2, 4))
        axes.set_ylim(0, 2 * min(part["risk"]))
        axes.set_title(f"lowest risk: T = {number(best['value'], 3)}", fontsize=9.5)

    return draw(plot, paint)


def _temperatures(axes: "Axes", x: Sequence[float], ticks: Sequence[float]) -> None:
    axes.set(xscale="log", xlim=(x[0], x[-1]))
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.set_xticks([], minor=True)
    axes.legend(frameon=False)


def _co_minimised(part: Mapping[str, Any]) -> str:
    plot = Plot("co-minimised", "Cal_S, risk and eigenvalue ECE against T, scaled to 0..1", part["claim"])

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot(xlabel="temperature T (log scale)", ylabel="scaled: 0 lowest, 1 highest")
        x = [point["temperature"] for point in part["points"]]
        for name, (label, color, dashes) in MEASURES.items():
            pairs = [(t, y) for t, y in zip(x, part["scaled"][name], strict=True) if y is not None]
            if pairs:
                axes.plot(*zip(*pairs, strict=True), color=color, linestyle=dashes, label=label)
        _temperatures(axes, x, (0.5, 1, 2, 4, 10, 30))

    return draw(plot, paint)


def _similarity(part: Mapping[str, Any]) -> str:
    raw = part["by_map"]["raw"]
    words = "; ".join(f"{number(row['predicted'], 2)}: {number(row['within_bin'])}" for row in raw)
    plot = Plot("similarity", "Similarity of density matrices in bins and clusters", f"In bins: {words}.")

    def paint(figure: "Figure") -> None:
        axes = figure.add_subplot(xlabel="raw λmax, mean of bin", ylabel="mean Frobenius cosine")
        for name, label in (("within_clusters", "within clusters"), ("within_bin", "within bins")):
            pairs = [(row["predicted"], row[name]) for row in raw if row[name] is not None]
            look = LOOKS["depolarized" if name == "within_clusters" else "temperature"]
            style = {"color": look.color, "marker": look.marker, "linestyle": look.dashes}
            if pairs:
                axes.plot(*zip(*pairs, strict=True), label=label, **style)
        axes.axhline(part["all_pairs"], color=GREY, linewidth=0.9, label="all pairs")
        axes.set(ylim=(0, 1))
        axes.legend(frameon=False)

    return draw(plot, paint)


def tables(results: Mapping[str, Any]) -> str:
    """Return the tables of an evaluation as Markdown. Empty cells cannot be computed."""
    parts = [f"## {title}\n\n{_table(head, rows)}" for title, head, rows in _tables(results)]
    return "\n\n".join(["# Tables", *parts]) + "\n"


Table = tuple[str, Sequence[str], list[list[str]]]


def _tables(results: Mapping[str, Any]) -> Iterator[Table]:
    """Yield title, head and rows of each table."""
    served, errors = results["served"], (results["calibration_error"] or {"by_map": {}})["by_map"]
    head = ("map", "risk, nats", "projection ECE", "projection Brier", "Cal_S, nats")
    yield (
        "Maps",
        (*head, "AUROC of lambda_max", "AUROC of -entropy"),
        [
            [
                MAPS[row["map"]],
                number(row["risk"]),
                f"{number(row['projection_ece'])} ({_null(row['projection_null'])})",
                number(row["projection_brier"]),
                number(errors.get(row["map"])),
                _estimate(row["auroc_lambda_max"]),
                _estimate(row["auroc_entropy"]),
            ]
            for row in served
        ],
    )
    yield (
        "Other scores",
        ("score", "AUROC", "how"),
        [[row["score"], _estimate(row["auroc"]), row["note"]] for row in results["baselines"]["rows"]],
    )
    rows = [(8, 1, row) for row in results["naive"]]
    rows += [(row["num_bins"], row["num_clusters"], row) for row in results["sensitivity"]]
    yield (
        "Algorithm 1 by numbers of bins and clusters",
        ("map", "bins", "clusters", "ECE", "references drawn", "references rescaled"),
        [
            [
                MAPS[row["map"]],
                f"{bins}",
                f"{clusters}",
                number(row["ece"]),
                _null(row["drawn"]),
                _null(row["rescaled"]),
            ]
            for bins, clusters, row in rows
        ],
    )
    yield (
        "Convergence of raw lambda_max",
        ("answers", "mean", "deviation"),
        [[str(p["num_samples"]), number(p["mean"]), number(p["deviation"])] for p in results["convergence"]],
    )
    if results["compared"] is not None:
        yield (
            "Kernels: facts, and compared by the LLM",
            ("figure", "facts", "LLM", "LLM minus facts"),
            [
                [row["figure"], number(row["facts"]), number(row["llm"]), _estimate(row["difference"])]
                for row in results["compared"]["rows"]
            ],
        )
    similar = results["similarity"] or {"by_map": {}}
    yield (
        "Similarity of density matrices",
        ("map", "mean lambda_max of bin", "within the bin", "within its clusters"),
        [
            [MAPS[name], number(row["predicted"]), number(row["within_bin"]), number(row["within_clusters"])]
            for name, rows_ in similar["by_map"].items()
            for row in rows_
        ],
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _estimate(part: Mapping[str, Any]) -> str:
    return f"{number(part['value'])} ({between(part)})" if between(part) else number(part["value"])


def _null(part: Mapping[str, Any]) -> str:
    return f"{between(part)}, p = {number(part['p_value'])}" if between(part) else number(None)
