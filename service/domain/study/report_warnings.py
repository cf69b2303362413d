"""What to know before figures are believed, as data: a stable code and a sentence in plain words."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from service.domain.calibrating.decision import shortcomings
from service.domain.decider import NEEDED_OF_A_KIND
from service.domain.jobs.model import FEW_ROWS, Verdict
from service.domain.study.report_model import DataPart, Decision, PlainWarning
from service.spectral.evidence_fit import EvidenceFit
from service.spectral.fit import DepolarizedFit, TemperatureFit
from service.spectral.text_scores import too_long

MANY = 0.05  # share of truncated or empty answers that is worth a warning
CONVERGED = 1e-4  # nats; a fit that has converged is within about 1e-6 (method, section 3)
# Two tests per pair of files: at this level one pair in fifty that is alike is called different.
DIFFERENT = 0.01
ENOUGH = f"A file should have at least {NEEDED_OF_A_KIND} right answers and {NEEDED_OF_A_KIND} wrong ones."
SHORT_REFERENCES = (
    "answers judged by their words are so much longer than their references that a right one is known only "
    "by a reference that stands in it, word for word. Look at the verdicts, or give your own (`correct`)."
)
RESTS = "AUROC, rejection, the correctness diagram and P(correct), if there is one, rest"

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


def caution(code: str, text: str) -> PlainWarning:
    """Return a warning."""
    return {"code": code, "text": text}


def few_of_a_kind(right: Bools, of_file: str = "", rests: str = RESTS) -> Iterator[PlainWarning]:
    """Yield a warning for fewer right answers than P(correct) needs, and for fewer wrong ones, of (n,).

    None for a kind that is not there at all: then there is no AUROC to warn of. of_file: such as " of the dev
    file", where there are several; rests: what rests on these answers, with its verb.
    """
    counts = {"right": int(right.sum()), "wrong": int(right.size - right.sum())}
    for kind, count in counts.items():
        if 0 < count < NEEDED_OF_A_KIND and count < right.size:
            text = f"Only {count} of {right.size} answers{of_file} are {kind}: {rests} on these few. {ENOUGH}"
            yield caution(f"few_{kind}", text)


def files_differ(accuracy: tuple[Bools, Bools], lambda_max: tuple[Floats, Floats]) -> Iterator[PlainWarning]:
    """Yield a warning where dev and test differ in accuracy (Fisher), or in mean raw lambda_max (Welch).

    accuracy: right or wrong, lambda_max: in [0, 1], each of the dev (n,) and the test prompts (k,).
    """
    found = (
        ("accuracy", "share of right answers", accuracy, _fisher(*accuracy)),
        ("lambda_max", "mean raw lambda_max", lambda_max, _welch(*lambda_max)),
    )
    for name, words, (dev, test), p_value in found:
        if p_value < DIFFERENT:
            text = (
                f"Dev and test are not alike: {words} {dev.mean():.3f} against {test.mean():.3f} "
                f"(p = {p_value:.1g}). A map fitted on one kind of prompt need not fit the other."
            )
            yield caution(f"files_differ_{name}", text)


def _fisher(dev: Bools, test: Bools) -> float:
    from scipy.stats import fisher_exact

    table = np.array([[one.sum(), one.size - one.sum()] for one in (dev, test)])
    return float(fisher_exact(table).pvalue)  # exact: right answers may be a handful


def _welch(dev: Floats, test: Floats) -> float:
    """Return the p-value of equal means; 1 where there is no spread to compare by."""
    from scipy.stats import ttest_ind

    if min(dev.size, test.size) < 2 or np.ptp(dev) == 0 == np.ptp(test):
        return 1.0
    # Welch: the two files need not spread alike.
    return float(ttest_ind(dev, test, equal_var=False).pvalue)


def about_data(data: DataPart, right: Bools) -> Iterator[PlainWarning]:
    """Yield warnings of few, short or useless rows, of labels (n,) of one kind, of answers cut or empty."""
    full, usable = data["rows_full"], data["usable"]
    if full < FEW_ROWS:
        yield caution(
            "few_rows",
            f"Only {full} rows: intervals are wide, unlike prompts go unnoticed. Use at least {FEW_ROWS}.",
        )
    if usable > full:
        fewer = f"have fewer than {data['num_samples']} answers"
        text = f"{usable - full} rows {fewer}: left out of the headline fit."
        yield caution("short_rows", text)
    if copies := data.get("copies", 0):
        text = f"{copies} rows ask what another row asks: of each question one row counts."
        yield caution("copies", text)
    if data["rows"] > usable + copies:
        text = f"{data['rows'] - usable - copies} rows have no reference or fewer than two answers: left out."
        yield caution("unusable_rows", text)
    if refused := data.get("refused", {"count": 0})["count"]:
        were = "1 row was" if refused == 1 else f"{refused} rows were"
        text = f"{were} refused by the LLM server while it answered others; they are listed by line."
        yield caution("refused_rows", text)
    if right.all() or not right.any():
        which = "right" if right.all() else "wrong"
        yield caution("one_class", f"All answers are {which}: AUROC cannot be computed.")
    yield from few_of_a_kind(right)
    if data["truncated"] > MANY:
        yield caution("truncated", f"{data['truncated']:.0%} of the answers were cut by max_tokens.")
    if data["empty"] > MANY:
        yield caution("empty", f"{data['empty']:.0%} of the answers are empty; they count as one meaning.")


def about_verdicts(
    verdicts: Sequence[Verdict], references: Sequence[Sequence[str]]
) -> Iterator[PlainWarning]:
    """Yield a warning where most verdicts by words are on answers too long for their references."""
    by_words = [pair for pair in zip(verdicts, references, strict=True) if pair[0].why != "given"]
    long = sum(too_long(verdict.answer, of) for verdict, of in by_words)
    if long > len(by_words) / 2:
        yield caution("short_references", f"{long} of {len(by_words)} {SHORT_REFERENCES}")


def about_fit(found: TemperatureFit | DepolarizedFit | EvidenceFit) -> Iterator[PlainWarning]:
    """Yield warnings of parameters on a bound, or of a search that has not converged."""
    for name in found.at_bound:
        text = f"The best {name} sits on the bound of the search: the data do not pin it down."
        yield caution("at_bound", text)
    if not found.at_bound and found.stationarity_gap > CONVERGED:
        text = f"The search stopped {found.stationarity_gap:.1e} from a stationary point."
        yield caution("not_converged", text)


def about_gain(decision: Decision) -> Iterator[PlainWarning]:
    """Yield a warning where held-out rows show no gain, or one that may be chance, whatever was asked."""
    if why := shortcomings(decision):
        yield caution("not_better", f"{why[0][0].upper()}{why[0][1:]}.")
        return
    figures = (decision["difference"], decision["brier_difference"])
    # An active calibration is beaten beyond chance or not at all.
    if decision["against"] is None and any(gap["high"] is not None and gap["high"] >= 0 for gap in figures):
        yield caution("gain_unsure", "Its gain over raw scores may be chance: the interval reaches 0.")
