"""Line plots of an evaluation: rows of an experiment to inline SVG."""

from typing import TYPE_CHECKING

from service.domain.study.model import Experiment
from service.domain.study.report_model import RejectionCurve
from service.report import diagrams
from service.report.answers import answers_plot
from service.report.diagrams import column, lines, log_temperature, mark
from service.report.drawing import FIRST, LOOKS, SECOND, THIRD, WIDE, Plot, draw
from service.report.words import MAPS, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(experiment: Experiment, key: str) -> float | None:
    """Return a figure of the headline, None where it is missing or no number."""
    value = experiment["headline"].get(key)
    return float(value) if isinstance(value, int | float) else None


def _plot(experiment: Experiment, words: str) -> Plot:
    return Plot(f"evaluation-{experiment['name']}", experiment["title"], words, WIDE)


def convergence(experiment: Experiment) -> str:
    """Return lambda_max by number of answers with its deviation between subsets."""
    rows = experiment["points"]
    plot = _plot(experiment, diagrams.samples_words(rows))
    return draw(plot, lambda drawn: diagrams.samples(drawn.add_subplot(), rows))


def constant(experiment: Experiment) -> str:
    """Return the risk of the constant predictor against temperature: lowest at 1."""
    rows, best = experiment["points"], figure(experiment, "best_temperature")
    x, risks, entropy = (column(rows, name) for name in ("temperature", "risk", "entropy"))

    def paint(drawn: "Figure") -> None:
        axes = drawn.add_subplot()
        lines(axes, x, [("risk", risks, FIRST), ("entropy", entropy, SECOND)])
        # Beyond twice the lowest lies a wall that would flatten the rest; a lowest of 0 has no such scale.
        axes.set(ylabel="nats", ylim=(0, 2 * min(risks) or None))
        log_temperature(axes, x[0], x[-1])
        axes.legend(frameon=False, loc="lower right")
        mark(axes, best, f"lowest: T = {number(best, 3)}")

    return draw(_plot(experiment, f"Risk is lowest at T = {number(best, 4)}."), paint)


def risk_and_entropy(experiment: Experiment) -> str:
    """Return risk on both files and entropy on dev against temperature."""
    rows, best = experiment["points"], figure(experiment, "temperature")
    x, dev, entropy, test = (
        column(rows, name) for name in ("temperature", "dev_risk", "dev_entropy", "test_risk")
    )
    risks = [("risk, dev", dev, FIRST), ("risk, test", test, THIRD)]

    def paint(drawn: "Figure") -> None:
        diagrams.risk_and_entropy(drawn.add_subplot(), x, risks, ("entropy, dev", entropy, SECOND), best)

    return draw(_plot(experiment, f"Risk and entropy meet at T = {number(best, 2)}."), paint)


def depolarized(experiment: Experiment) -> str:
    """Return risk on both files against the depolarisation g."""
    rows, best = experiment["points"], figure(experiment, "depolarization")
    x, dev, test = (column(rows, name) for name in ("depolarization", "dev_risk", "test_risk"))

    def paint(drawn: "Figure") -> None:
        axes = drawn.add_subplot()
        lines(axes, x, [("risk, dev", dev, FIRST), ("risk, test", test, THIRD)])
        top = max(1.8 * min(dev), 1.1 * max(dev), 1.1 * max(test))  # nothing here is a wall
        axes.set(xlabel="depolarisation g", ylabel="nats", xlim=(0, 1), ylim=(0, top))
        axes.legend(frameon=False, loc="lower left")
        mark(axes, best, f"fit: g = {number(best, 2)}")

    return draw(_plot(experiment, f"Risk on dev is lowest at g = {number(best, 2)}."), paint)


def evidence_map(experiment: Experiment) -> str:
    """Return the mean test risk with and without evidence against the missing mass."""
    rows = experiment["points"]
    x = column(rows, "missing_mass")
    risks = {name: column(rows, f"test_risk_{name}") for name in ("depolarized", "evidence")}

    def paint(drawn: "Figure") -> None:
        axes = drawn.add_subplot()
        for name, y in risks.items():
            look = LOOKS[name]
            axes.plot(
                x,
                y,
                color=look.colour,
                linestyle=look.dashes,
                marker=look.marker,
                label=MAPS[name],
                clip_on=False,
            )
        axes.set(xlabel="missing mass u, mean of group", ylabel="test risk, nats", xlim=(0, 1))
        axes.set_ylim(0, 1.25 * max(max(y) for y in risks.values()))
        axes.legend(frameon=False, loc="lower right")

    told = "; ".join(f"{u:.2f}: {number(a)}, {number(b)}" for u, a, b in zip(x, *risks.values(), strict=True))
    return draw(_plot(experiment, f"Missing mass: risk depolarized, evidence. {told}."), paint)


def cominimised(experiment: Experiment) -> str:
    """Return Cal_S, risk and eigenvalue ECE, each scaled from its least (0) to its most (1)."""
    rows = experiment["points"]
    names = {"cal_s": ("Cal_S", FIRST), "risk": ("risk", SECOND), "eigenvalue_ece": ("eigenvalue ECE", THIRD)}
    x = column(rows, "temperature")
    told = "; ".join(
        f"{name} lowest at T = {number(figure(experiment, f'{key}_lowest_at'), 2)}"
        for key, (name, _) in names.items()
    )

    def paint(drawn: "Figure") -> None:
        axes = drawn.add_subplot()
        for key, (name, look) in names.items():
            y = column(rows, f"{key}_scaled")
            axes.plot(
                x,
                y,
                color=look.colour,
                linestyle=look.dashes,
                marker=look.marker,
                markersize=4.5,
                clip_on=False,
                label=name,
            )
        axes.set(ylabel="scaled: least 0, most 1", ylim=(-0.04, 1.04))
        log_temperature(axes, x[0], x[-1])
        axes.legend(frameon=False, loc="upper center")

    return draw(_plot(experiment, f"{told}."), paint)


def rejection(experiment: Experiment) -> str:
    """Return the accuracy of what is kept against the share rejected, by lambda_max."""
    rows = [row for row in experiment["points"] if row["score"] == "lambda_max"]
    curves: list[RejectionCurve] = []
    for name in dict.fromkeys(str(row["map"]) for row in rows):
        mine = [row for row in rows if row["map"] == name]
        rejected, accuracy = column(mine, "rejected"), column(mine, "accuracy")
        curves.append({"map": name, "rejected": rejected, "accuracy": accuracy})
    areas = "; ".join(
        f"{MAPS[c['map']]}: {number(figure(experiment, c['map'] + '_lambda_max_area'))}" for c in curves
    )
    plot = _plot(experiment, f"Areas: {areas}.")
    return draw(plot, lambda drawn: diagrams.rejection(drawn.add_subplot(), curves))


def answers(experiment: Experiment) -> str:
    """Return the loss that decides how many answers are enough, by number of answers."""
    return answers_plot("evaluation-answers", experiment["points"], experiment["headline"])


def sampling_temperature(experiment: Experiment) -> str:
    """Return the ECE of the largest semantic class's share on dev against the sampling temperature."""
    rows = experiment["points"]
    x, y = column(rows, "sampling_temperature"), column(rows, "class_share_ece")

    def paint(drawn: "Figure") -> None:
        axes = drawn.add_subplot()
        axes.plot(x, y, color="black", marker="s")
        axes.set(
            xlabel="sampling temperature", ylabel="ECE of the largest class's share, dev", ylim=(0, None)
        )
        mark(axes, figure(experiment, "sampling_temperature"), "chosen")

    told = "; ".join(f"{a:g}: {number(b)}" for a, b in zip(x, y, strict=True))
    return draw(_plot(experiment, f"{told}."), paint)
