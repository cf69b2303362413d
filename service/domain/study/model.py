"""What an evaluation returns: exactly what is written as results.json, drawn, and written as CSV.

Numbers are floats; what cannot be computed is null, never NaN. Names of maps: "raw" (no calibration),
"temperature" (the paper's), "depolarized" (ours), "evidence" (ours, by log-probabilities; absent where a row
has none), all fitted on the dev file and applied to the test file.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NotRequired, TypedDict

from service.domain.models import EmbedderIdentity
from service.domain.study.report_model import Estimate, PlainWarning
from service.spectral.maps import DEFAULT_EPS

Value = float | int | str | bool | None
TableRow = dict[str, Value]

MAPS = ("raw", "temperature", "depolarized", "evidence")


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


class FilePart(TypedDict):
    """One file: its name and the SHA-256 of its bytes; null where a job does not keep them.

    answers_from: "file" (it came with them) or "model" (drawn here).
    """

    name: str | None
    sha256: str | None
    answers_from: str


class AnswersPart(TypedDict):
    """What answers were drawn with. model: as asked for; answered_as: the name that the server gave itself.

    setups: by kind of row ("prompt", "messages"), the parts of a fingerprint but for model and embedder.
    """

    model: str
    answered_as: str
    setups: dict[str, dict[str, Any]]


class Provenance(TypedDict):
    """Where results come from.

    answers: null when every answer came with the files, which do not say who drew them.
    """

    version: str
    created_at: str
    eps: float
    files: dict[str, FilePart]
    answers: AnswersPart | None
    embedders: list[dict[str, Any]]


class Results(TypedDict):
    """The whole evaluation. num_samples: answers per prompt that scores and fits use.

    provenance: absent from results of before it was kept. verdict: sentences for the top of the page.
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


def finite(value: float) -> float | None:
    """Return a number, None for NaN and infinities: JSON has neither."""
    return float(value) if math.isfinite(value) else None


def estimate(value: float, low: float = math.nan, high: float = math.nan) -> Estimate:
    """Return a figure with its interval."""
    return {"value": finite(value), "low": finite(low), "high": finite(high)}


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


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file as whoever read it knows it."""

    supplied: bool
    name: str | None = None
    sha256: str | None = None


def provenance(
    files: Mapping[str, DataFile],
    answers: AnswersPart | None,
    embedders: Iterable[EmbedderIdentity],
    *,
    version: str,
    now: datetime | None = None,
) -> Provenance:
    """Return the part of the results; files: "dev" and "test"."""
    return {
        "version": version,
        "created_at": (now or datetime.now(UTC)).isoformat(timespec="seconds"),
        "eps": DEFAULT_EPS,
        "files": {split: _file(one) for split, one in files.items()},
        "answers": answers,
        "embedders": [asdict(one) for one in embedders],
    }


def _file(source: DataFile) -> FilePart:
    return {
        "name": source.name,
        "sha256": source.sha256,
        "answers_from": "file" if source.supplied else "model",
    }
