"""What the first m' answers of each prompt are worth, and how many to draw (decisions/0025).

Maps and P(correct) are fitted for each m' and judged. The first m', not random ones: they are what a request
for m' answers would have drawn, and cost. They judge one text of a prompt, however few they are: its
`answer`, or the dominant one of all answers (`FullRows`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import WITHOUT_EVIDENCE
from service.calibration.fitting import METHODS
from service.calibration.labels import Judged, JudgedAlone
from service.calibration.material import Material
from service.report.words import estimate
from service.spectral.correctness import auroc, half_error, resampled_aurocs, resampled_half_errors
from service.spectral.correctness_model import (
    Columns,
    CorrectnessFit,
    ModelPriorSource,
    base_rate,
    fit_correctness,
    held_out_predictions,
    log_losses,
    no_model_prior,
    stratified_folds,
)
from service.spectral.dev_set import risks, served_lambda_max
from service.spectral.evidence import EvidenceMap, EvidenceSet, fit_evidence
from service.spectral.fit import PriorSource, fit, no_prior
from service.spectral.maps import CalibrationMap, Identity
from service.spectral.resampling import ResampleCounts, percentile_interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]
Bools = NDArray[np.bool_]
AnyMap = CalibrationMap | EvidenceMap
# Begins the same random numbers anew: each fit is judged on the same folds, whatever others there are.
Fresh = Callable[[], np.random.Generator]

SIZES = (1, 2, 3, 5, 8, 10, 20, 40, 80, 160)
# The map whose p(y) and entropy are features of P(correct), with the log-probabilities and without.
CORRECT_BY = ("evidence", "depolarized")
MAP_ALONE = "evidence"  # where no answer is drawn, log-probabilities are all that is known


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """One score of a map with so many answers, (n,) each: losses in nats, squared errors, and its values."""

    score: Literal["probability_correct", "lambda_max"]
    map: str
    losses: Floats
    squares: Floats
    values: Floats


@dataclass(frozen=True, slots=True, eq=False)
class AtSize:
    """n prompts judged by so many of their answers.

    right: (n,) verdicts on the text judged. served: lambda_max of each map, evidence alone for one answer.
    correct: P(correct) (n,) by `CORRECT_BY`, the base rate where no model beats it; base: (n,) the base rate
    of the verdicts fitted on. why_none: why there is no P(correct) at all, else "". tokens: completion tokens
    per question, None where a draw does not tell. same_text: whether the text judged is the one that other
    numbers of answers judge: losses of different texts do not compare. groups: as `Material.full_groups`.
    """

    num_samples: int
    right: Bools
    served: Sequence[Scored]
    correct: Mapping[str, Floats]
    base: Floats
    why_none: str
    tokens: float | None
    same_text: bool = True
    groups: Ints | None = None


def sizes(num_samples: int) -> list[int]:
    """Return the numbers of answers that are compared, up to m, which is always the last.

    >>> sizes(12)
    [1, 2, 3, 5, 8, 10, 12]
    """
    return [*(m for m in SIZES if m < num_samples), num_samples]


def mean_tokens(material: Material, num_samples: int) -> float | None:
    """Return the mean number of tokens of the first answers of a full row; None where one is not known."""
    drawn = [draw.num_tokens for i in material.full for draw in material.rows[int(i)].draws[:num_samples]]
    known = [count for count in drawn if count is not None]
    return sum(known) / material.full.size if len(known) == len(drawn) else None


def judge(dev: Judged, test: Judged, num_samples: int, tokens: float | None, rng: Fresh) -> AtSize:
    """Return what is fitted on `dev` with so many answers, as judged on `test`."""
    maps = _maps(dev, num_samples, no_prior)
    if test.missing_mass is None:
        maps.pop("evidence", None)
    served, columns = _applied([(maps, test)], np.arange(len(test)))
    fitted_on = {name: _columns(dev, maps[name], name) for name in columns}, dev.right
    return _judged(test, num_samples, served, columns, tokens, rng, fitted_on=fitted_on)


def judge_held_out(
    rows: Judged,
    fold: Ints,
    num_samples: int,
    tokens: float | None,
    rng: Fresh,
    priors: PriorSource,
    model_priors: ModelPriorSource,
) -> AtSize:
    """Return the same for one set of rows, each judged by fits without its fold (n,)."""
    folds = [np.flatnonzero(fold == number) for number in range(int(fold.max()) + 1)]
    parts = [
        (_maps(rows.take(fold != k), num_samples, priors), rows.take(held)) for k, held in enumerate(folds)
    ]
    served, columns = _applied(parts, np.argsort(np.concatenate(folds)))
    return _judged(rows, num_samples, served, columns, tokens, rng, model_priors=model_priors)


def judge_alone(
    rows: JudgedAlone,
    rng: Fresh,
    *,
    dev: JudgedAlone | None = None,
    model_priors: ModelPriorSource = no_model_prior,
) -> AtSize:
    """Return what the log-probabilities of the judged texts are worth by themselves: no answer is drawn.

    dev: what is fitted on; None: the rows, each judged by a fit without its fold.
    """
    fitted_on = None if dev is None else ({MAP_ALONE: dev.columns}, dev.right)
    columns = {MAP_ALONE: rows.columns}
    return _judged(rows, 0, [], columns, 0.0, rng, fitted_on=fitted_on, model_priors=model_priors)


def _applied(
    parts: Sequence[tuple[Mapping[str, AnyMap], Judged]], order: Ints
) -> tuple[list[Scored], dict[str, Columns]]:
    """Return what maps serve of the rows that each set of them is for, and the columns by `CORRECT_BY`.

    order: (n,), where each prompt is among all rows of the parts.
    """
    served, columns = list[Scored](), dict[str, Columns]()
    for name in parts[0][0]:
        of_parts = [_scored(name, maps[name], rows) for maps, rows in parts]
        figures = zip(*((one.losses, one.squares, one.values) for one in of_parts), strict=True)
        served.append(Scored("lambda_max", name, *(np.concatenate(figure)[order] for figure in figures)))
    for name in (name for name in CORRECT_BY if name in parts[0][0]):
        features = [_columns(rows, maps[name], name) for maps, rows in parts]
        columns[name] = {
            key: np.concatenate([np.asarray(x[key]) for x in features])[order] for key in features[0]
        }
    return served, columns


def _judged(
    rows: Judged | JudgedAlone,
    num_samples: int,
    served: Sequence[Scored],
    columns: Mapping[str, Columns],
    tokens: float | None,
    rng: Fresh,
    *,
    fitted_on: tuple[Mapping[str, Columns], Bools] | None = None,
    model_priors: ModelPriorSource = no_model_prior,
) -> AtSize:
    """Return the rows as judged by P(correct), too.

    fitted_on: columns and verdicts of another file; None: the rows, each judged by a model without its fold.
    """
    known, right = fitted_on or (columns, rows.right)
    groups = rows.groups if fitted_on is None else None
    fold = stratified_folds(right, 5, rng(), groups)
    fits = {
        name: fit_correctness(one, right, fold, prior=model_priors(name, num_samples, one), groups=groups)
        for name, one in known.items()
    }
    if fitted_on is None:
        base = held_out_predictions({}, right, (), fold)
        predicted = {name: one.held_out for name, one in fits.items()}
    else:
        base = np.full(len(rows), base_rate(right))
        predicted = {name: one.model.predict(columns[name]) for name, one in fits.items() if one.model}
    return AtSize(
        num_samples,
        rows.right,
        served,
        {
            name: base if one.model is None else np.asarray(predicted[name])
            for name, one in fits.items()
            if one.held_out is not None
        },
        base,
        _why_none(fits, "answers" if fitted_on is None else "answers of the dev file") if num_samples else "",
        tokens,
        same_text=isinstance(rows, Judged) or rows.judged == "given",
        groups=groups,
    )


def _maps(rows: Judged, num_samples: int, priors: PriorSource) -> dict[str, AnyMap]:
    """Return every map fitted on the rows; one answer has a spectrum of 1, which only evidence can map."""
    maps: dict[str, AnyMap] = {}
    if num_samples > 1:
        maps["raw"] = Identity()
        for method in METHODS:
            maps[method] = fit(rows.rows, method, prior=priors(method, num_samples)).map
    if rows.missing_mass is not None:
        prior = priors("evidence", num_samples)
        maps["evidence"] = fit_evidence(EvidenceSet(rows.rows, rows.missing_mass), prior).map
    return maps


def _scored(name: str, map_: AnyMap, rows: Judged) -> Scored:
    over = rows.over(map_)
    largest = served_lambda_max(over, rows.rows)
    gaps = largest - np.clip(rows.rows.alignment[:, 0], 0.0, 1.0)
    return Scored("lambda_max", name, risks(over, rows.rows), np.square(gaps), largest)


def _columns(rows: Judged, map_: AnyMap, name: str) -> Columns:
    columns = rows.columns(map_)
    # Without evidence means what a server without log-probabilities would leave.
    return columns if name == "evidence" else {k: v for k, v in columns.items() if k in WITHOUT_EVIDENCE}


def _why_none(fits: Mapping[str, CorrectnessFit], what: str) -> str:
    """Return why there is no P(correct) with so many answers; "" where there is one, or nothing to fit."""
    for one in fits.values():
        if one.why_none == "one_kind":
            return f"all {one.num_right + one.num_wrong} {what} are {'right' if one.num_right else 'wrong'}"
    return ""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One way to serve: losses (n,) in nats by prompt with so many answers, and what they cost.

    map: "evidence" uses log-probabilities, others do not. tokens: per question, None where not known.
    """

    num_samples: int
    map: str
    losses: Floats
    tokens: float | None = None

    @property
    def loss(self) -> float:
        """The mean loss in nats; lower = better."""
        return float(self.losses.mean())

    @property
    def words(self) -> str:
        """Number and map in words."""
        if not self.num_samples:
            return "0 answers, using the log-probability of the answer itself"
        answers = "1 answer" if self.num_samples == 1 else f"{self.num_samples} answers"
        return f"{answers}, {'using' if self.map == 'evidence' else 'without'} log-probabilities"


def gap(losses: Floats, best: Floats) -> tuple[float, float]:
    """Return the mean of losses - best (n,) in nats, paired by prompt, and its standard error."""
    by_prompt = losses - best
    return float(by_prompt.mean()), float(by_prompt.std(ddof=1) / np.sqrt(by_prompt.size))


def _within(losses: Floats, best: Floats) -> bool:
    """Return whether the gap is one standard error at most."""
    value, standard_error = gap(losses, best)
    return value <= standard_error


def _gap_words(losses: Floats, best: Floats) -> str:
    return "difference {:+.4f}, standard error {:.4f}".format(*gap(losses, best))


def recommend(candidates: Sequence[Candidate], base: Floats | None = None) -> tuple[str, Candidate | None]:
    """Return the fewest answers whose mean loss is within one standard error of the least, paired by prompt.

    As a sentence, and the candidate that it names; None where nothing can be recommended. Losses: of
    P(correct). Among candidates with equally few answers, the one of the lower loss. base: losses (n,) of
    what needs no answers at all; where they are within one standard error, too, these prompts cannot tell
    numbers of answers apart.
    """
    if len({one.num_samples for one in candidates}) < 2:
        return _nothing("there are not two numbers of answers to compare")
    best = min(candidates, key=lambda one: (one.loss, one.num_samples))
    if base is not None and _within(base, best.losses):
        return _nothing(
            f"the log loss of P(correct) of the best, {best.words} ({best.loss:.3f}), is within one standard "
            f"error of that of the mere share of right answers ({_gap_words(base, best.losses)})"
        )
    close = [one for one in candidates if _within(one.losses, best.losses)]
    chosen = min(close, key=lambda one: (one.num_samples, one.loss))
    beside = f"; best: {best.words}, {best.loss:.3f}, {_gap_words(chosen.losses, best.losses)}"
    full = max(candidates, key=lambda one: one.num_samples)
    cost = f"{chosen.tokens:.0f} tokens per question" if chosen.tokens is not None else "tokens are not known"
    if chosen.tokens is not None and full.tokens is not None and chosen.num_samples != full.num_samples:
        cost += f" instead of {full.tokens:.0f}"
    loss = f"log loss of P(correct) {chosen.loss:.3f}{'' if chosen is best else beside}"
    return f"Recommended: {chosen.words} ({loss}); {cost}.", chosen


def _nothing(reason: str) -> tuple[str, None]:
    return f"No number of answers can be recommended: {reason}.", None


def recommended(sizes: Sequence[AtSize]) -> tuple[str, Candidate | None]:
    """Return how many answers to ask for, by the log loss of P(correct); where there is none, why not.

    Never by risk, which falls with every answer (they span more of what a reference may be): that would name
    all of them, whatever they are worth.
    """
    if why := next((one.why_none for one in sizes if one.why_none), ""):
        return _nothing(f"{why}. They are compared by P(correct), which takes right ones and wrong ones")
    candidates = [
        Candidate(at.num_samples, name, _losses(at, p), at.tokens)
        for at in sizes
        for name, p in at.correct.items()
        if at.same_text
    ]
    return recommend(candidates, _losses(sizes[-1], sizes[-1].base))


def _losses(at: AtSize, predicted: Floats) -> Floats:
    """Return the log loss of each prompt (n,) in nats, or the mean of each group (G,)."""
    losses = log_losses(predicted, at.right)
    if at.groups is None:
        return losses
    of_row = np.unique(at.groups, return_inverse=True)[1]
    return np.asarray(np.bincount(of_row, weights=losses) / np.bincount(of_row))


def answers_part(sizes: Sequence[AtSize], resamples: ResampleCounts) -> dict[str, Any]:
    """Return a row per number of answers and score, and the fewest answers that are enough.

    Scores: lambda_max of every map (loss: matrix log risk; Brier: the projection's), and P(correct) with
    evidence and without (log loss and Brier of the verdicts). loss_gap: to the loss with all answers, on the
    same resamples of the prompts: fits stay as they are; null for all answers themselves, and where another
    text is judged. half_error: share of wrong ones in the half of highest score. tokens: per question.
    recommended: with `recommended_map`, null where nothing can be; recommendation: a sentence.
    """
    sentence, chosen = recommended(sizes)
    full = {(one.score, one.map): one.losses for one in _every_score(sizes[-1])}
    return {
        "recommendation": sentence,
        "recommended": chosen.num_samples if chosen else None,
        "recommended_map": chosen.map if chosen else None,
        "rows": [
            _row(at, one, full.get((one.score, one.map)) if compares else None, resamples)
            for at, compares in ((at, at is not sizes[-1] and at.same_text) for at in sizes)
            for one in _every_score(at)
        ],
    }


def _every_score(at: AtSize) -> Iterator[Scored]:
    for name, p in at.correct.items():
        # Base rates of folds order by the lack of right answers in each: below 0.5, and nobody's score.
        values = np.zeros_like(p) if p is at.base else p
        yield Scored("probability_correct", name, log_losses(p, at.right), np.square(p - at.right), values)
    yield from at.served


def _row(at: AtSize, one: Scored, full: Floats | None, resamples: ResampleCounts) -> dict[str, Any]:
    def mean(values: Floats) -> dict[str, float | None]:
        return estimate(float(values.mean()), percentile_interval(resamples.means(values)))

    ranking = percentile_interval(resampled_aurocs(resamples, one.values, at.right))
    halves = percentile_interval(resampled_half_errors(resamples, one.values, at.right))
    return {
        "num_samples": at.num_samples,
        "score": one.score,
        "map": one.map,
        "tokens": at.tokens,
        "loss": mean(one.losses),
        "loss_gap": None if full is None else mean(one.losses - full),
        "brier": mean(one.squares),
        "auroc": estimate(auroc(one.values, at.right), ranking),
        "half_error": estimate(half_error(one.values, at.right), halves),
    }
