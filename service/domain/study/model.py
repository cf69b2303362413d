"""What an evaluation returns: exactly what is written as results.json, drawn, and written as CSV.

Numbers are floats; what cannot be computed is null, never NaN. Names of maps: "raw" (no calibration),
"temperature" (the paper's), "depolarized" (ours), all fitted on the dev file and applied to the test file.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, TypedDict

from service.domain.study.provenance import Provenance
from service.domain.study.report_model import PlainWarning

Value = float | int | str | bool | None
TableRow = dict[str, Value]

MAPS = ("raw", "temperature", "depolarized")


class Experiment(TypedDict):
    """One experiment. `headline` is its row; `points` is the table behind its figure, written as CSV.

    `ran` is false where the files do not hold what it needs, or where nothing could be computed from them;
    `reason` then says so in words.
    """

    name: str
    title: str
    ran: bool
    reason: str
    headline: TableRow
    points: list[TableRow]


class SplitPart(TypedDict):
    """One file: prompts used of those in it, answers per prompt, who says what is right, share of right."""

    rows: int
    used: int
    answers_in_file: int
    distinct_mean: float
    correct_from: Literal["data", "rouge_l", "mixed"]
    accuracy: float


class Results(TypedDict):
    """The whole evaluation. num_samples: answers per prompt that scores and fits use.

    provenance: absent from results of before it was kept. verdict: three sentences for the top of the page.
    cautions: those of `warnings` that have a code. Results of earlier releases lack all three.
    """

    version: Literal[1]
    num_samples: int
    seed: int
    embedders: list[str]
    meanings: str
    dev: SplitPart
    test: SplitPart
    experiments: list[Experiment]
    warnings: list[str]
    provenance: NotRequired[Provenance]
    verdict: NotRequired[list[str]]
    cautions: NotRequired[list[PlainWarning]]


def ran(
    name: str, title: str, headline: Mapping[str, Value], points: Sequence[Mapping[str, Value]]
) -> Experiment:
    """Return an experiment that ran."""
    return {
        "name": name,
        "title": title,
        "ran": True,
        "reason": "",
        "headline": dict(headline),
        "points": [dict(row) for row in points],
    }


def unless_empty(experiment: Experiment, reason: str, *columns: str) -> Experiment:
    """Return the experiment; as one that did not run where none of these columns of its table has a value.

    Such a table has nothing to draw and nothing to say.
    """
    found = any(row[column] is not None for row in experiment["points"] for column in columns)
    return experiment if found else not_run(experiment["name"], experiment["title"], reason)


def not_run(name: str, title: str, reason: str) -> Experiment:
    """Return an experiment that did not run, and why."""
    return {"name": name, "title": title, "ran": False, "reason": reason, "headline": {}, "points": []}
