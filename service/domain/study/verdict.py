"""What an evaluation comes to: four sentences on top, and whether the paper's claim holds on these files."""

from collections.abc import Mapping, Sequence

from service.domain.study.model import Experiment, TableRow, Value

LEVEL = 0.05
WORDS = {
    "raw": "raw scores",
    "temperature": "the paper's map",
    "depolarized": "the depolarised map",
    "evidence": "the evidence map",
}
FEWEST_TO_RANK = 0.5  # AUROC of a score that knows nothing


def verdict(experiments: Sequence[Experiment]) -> list[str]:
    """Return sentences: is it a gain, is what is served calibrated, does it tell right from wrong.

    The last says how many answers to ask for; it is absent from results without that experiment. Each says
    what cannot be told, where an experiment did not run. By risk and by nulls, never by a bare ECE.
    """
    found = {one["name"]: one for one in experiments if one["ran"]}
    enough = [str(found["answers"]["headline"]["recommendation"])] if "answers" in found else []
    return [_gain(found), _calibrated(found), _ranking(found), *enough]


def _gain(found: Mapping[str, Experiment]) -> str:
    if "comparison" not in found:
        return "Whether the depolarised map is the better one was not tested."
    gap = _one(found["comparison"]["points"], second="depolarized", first="temperature", figure="test_risk")
    raw = _one(found["comparison"]["points"], second="depolarized", first="raw", figure="projection_brier")
    return (
        f"On the test file the depolarised map's risk is {_against(gap)} that of the paper's map "
        f"({_interval(gap)} nats), and its projection Brier score {_against(raw)} that of raw scores "
        f"({_interval(raw)}).{_gain_of_evidence(found)}"
    )


def _gain_of_evidence(found: Mapping[str, Experiment]) -> str:
    if not found.get("evidence_map"):
        return ""
    gap = _one(found["comparison"]["points"], second="evidence", first="depolarized", figure="test_risk")
    return f" The evidence map's risk is {_against(gap)} the depolarised map's ({_interval(gap)} nats)."


def _against(gap: TableRow) -> str:
    if not gap["real"]:
        return "not told apart from"
    return "below" if _number(gap["difference"]) < 0 else "above"


def _interval(gap: TableRow) -> str:
    difference, low, high = (_number(gap[key]) for key in ("difference", "low", "high"))
    return f"difference {difference:+.3f}, 95 % {low:+.3f} to {high:+.3f}"


def _calibrated(found: Mapping[str, Experiment]) -> str:
    if "projection_reliability" not in found:
        return "Whether the scores are calibrated was not tested."
    headline = found["projection_reliability"]["headline"]
    told = [f"{words} {_projection(headline, n)}" for n, words in WORDS.items() if f"{n}_ece" in headline]
    return f"By their projection ECE, beside what calibrated scores read on these prompts: {'; '.join(told)}."


def _projection(headline: TableRow, name: str) -> str:
    ece, low, high, p_value = (
        _number(headline[f"{name}_{key}"]) for key in ("ece", "band_low", "band_high", "p_value")
    )
    if p_value <= LEVEL:
        word = "are not calibrated" if name == "raw" else "is not calibrated"
    else:
        word = "shows no miscalibration"
    return f"{word} ({ece:.3f} against {low:.3f} to {high:.3f}, p = {p_value:.2g})"


def _ranking(found: Mapping[str, Experiment]) -> str:
    if "auroc" not in found:
        return "Whether the scores tell right answers from wrong ones cannot be said: all are of one kind."
    row = _one(found["auroc"]["points"], map="depolarized", score="lambda_max")
    value, low, high = (row[key] for key in ("auroc", "low", "high"))
    if not isinstance(value, float) or not isinstance(low, float) or not isinstance(high, float):
        return "Whether the scores tell right answers from wrong ones cannot be said from so few."
    does = "tells" if low > FEWEST_TO_RANK else "is not shown to tell"
    return (
        f"The depolarised map's lambda_max {does} right answers from wrong ones (AUROC {value:.3f}, 95 % "
        f"{low:.3f} to {high:.3f})."
    )


def claim(risk_at: float | None, ece_at: float | None, cal_s_at: float | None) -> str:
    """Return whether the paper's claim holds: calibration error, risk and ECE lowest at one temperature.

    Arguments: the temperature of the grid where each is lowest on the test file, None where unknown.
    """
    if risk_at is None or ece_at is None or cal_s_at is None:
        return "The paper's claim cannot be tested here: a measure is not known at any temperature."
    others = (("eigenvalue ECE", ece_at), ("Cal_S", cal_s_at))
    off = [f"the {name} at {at:.2g}" for name, at in others if at != risk_at]
    if not off:
        return (
            f"The paper's claim holds on these files: all three are lowest at T = {risk_at:.2g} of the grid."
        )
    return (
        f"The paper's claim fails on these files: the risk is lowest at T = {risk_at:.2g}, "
        f"{' and '.join(off)}. The temperature of the lowest ECE is not the one of the lowest risk."
        if ece_at != risk_at
        else f"The paper's claim holds for the ECE only: the risk is lowest at T = {risk_at:.2g}, {off[0]}."
    )


def _one(rows: Sequence[TableRow], **where: Value) -> TableRow:
    return next(row for row in rows if all(row[key] == value for key, value in where.items()))


def _number(value: Value) -> float:
    return float(value) if isinstance(value, float | int) else float("nan")
