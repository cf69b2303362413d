"""The kernel of facts and that of an LLM that compares answers, judged on the same rows.

For each kernel, a map and a model of P(correct) are fitted on dev and served on test. Verdicts are of each
row's `answer`. For rows without one they are of the dominant answer, which may differ between kernels.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.resampling import DEFAULT, Resamples, figure_difference
from service.calibration.fitting import Stream, rng
from service.calibration.labels import LabelledRows
from service.calibration.material import DevSet
from service.report.words import estimate, finite
from service.spectral.correctness_model import AGREEMENT, fit_model, log_loss
from service.spectral.dev_set import born_probabilities, served_lambda_max
from service.spectral.fit import fit
from service.spectral.reliability import auroc, reliability_diagram

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Cost:
    """The cost of comparisons. calls: Yes and No replies. tokens: of prompts and replies."""

    calls: int
    tokens: float
    questions: int


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Scores of n test rows under one kernel, (n,) each. right: verdicts on the judged texts."""

    right: NDArray[np.bool_]
    by_name: Mapping[str, Floats]


def scores(dev: DevSet, test: DevSet) -> Scores:
    """Return p(y), lambda_max and P(correct) of the test rows, by a map and a model fitted on dev."""
    fitted, judged = (LabelledRows(m).at(m.num_samples, one_text=True) for m in (dev, test))
    has_masses = fitted.rows.missing_mass is not None and judged.rows.missing_mass is not None
    map_ = fit(fitted.rows, "evidence" if has_masses else "depolarized").map
    model = fit_model(fitted.columns(map_), fitted.right, [AGREEMENT])
    return Scores(
        judged.right,
        {
            "p_y": born_probabilities(map_, judged.texts),
            "lambda_max": served_lambda_max(map_, judged.rows),
            "probability_correct": model.predict(judged.columns(map_)),
        },
    )


def _ranking(name: str) -> Callable[[Scores, Ints], float]:
    return lambda part, pick: auroc(part.by_name[name][pick], part.right[pick])


def _log_loss(part: Scores, pick: Ints) -> float:
    return float(log_loss(part.by_name["probability_correct"][pick], part.right[pick]))


def _ece(part: Scores, pick: Ints) -> float:
    p = np.clip(part.by_name["probability_correct"][pick], 0.0, 1.0)
    return reliability_diagram(p, part.right[pick]).ece


# Log loss and ECE are of P(correct).
FIGURES: Mapping[str, Callable[[Scores, Ints], float]] = {
    "auroc_p_y": _ranking("p_y"),
    "auroc_lambda_max": _ranking("lambda_max"),
    "auroc_probability_correct": _ranking("probability_correct"),
    "log_loss": _log_loss,
    "ece": _ece,
}


def compare_kernels(
    facts: Scores, llm: Scores, model: str, cost: Cost, seed: int, resamples: Resamples = DEFAULT
) -> dict[str, Any]:
    """Return each figure under both kernels, and the difference (llm minus facts), paired by row.

    cost: of the comparisons of both files. real: True if the interval excludes 0. Lower = better for log loss
    and ECE, higher for AUROCs. AUROCs are null if all answers are right, or all wrong.
    """
    rows, everything = [], np.arange(facts.right.size)
    for name, figure in FIGURES.items():

        def both(pick: Ints, figure: Callable[[Scores, Ints], float] = figure) -> tuple[float, float]:
            return figure(llm, pick), figure(facts, pick)

        random = rng(seed, Stream.DIFFERENCES)
        gap = figure_difference(both, everything.size, random, resamples=resamples.figure_difference)
        by_llm, by_facts = both(everything)
        rows.append(
            {
                "figure": name,
                "facts": finite(by_facts),
                "llm": finite(by_llm),
                "difference": estimate(gap.value, gap),
                "real": gap.real,
            }
        )
    return {
        "model": model,
        "rows": rows,
        "right": {"facts": int(facts.right.sum()), "llm": int(llm.right.sum())},
        "calls_per_question": cost.calls / cost.questions,
        "tokens_per_question": cost.tokens / cost.questions,
    }
