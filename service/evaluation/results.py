"""What an evaluation returns: exactly what is written as results.json, shown on its page, and written as CSV.

Numbers are floats; what cannot be computed is null, never NaN. Names of maps: "raw" (no calibration),
"temperature" (the paper's), "depolarized" (ours), "evidence" (ours, by log-probabilities; absent where a row
has none), all fitted on the dev file and applied to the test file.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict, cast

from service.embedding.port import EmbedderIdentity
from service.report.model import PlainWarning
from service.spectral.maps import DEFAULT_EPS

Value = float | int | str | bool | None
TableRow = dict[str, Value]
MAPS = ("raw", "temperature", "depolarized", "evidence")


class Experiment(TypedDict):
    """One experiment. `headline` is its row; `points` is its table, written as CSV.

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


class DrawnAnswers(TypedDict):
    """What answers were drawn with. model: as asked for; answered_as: the name that the server gave itself.

    setups: by kind of row ("prompt", "messages"), the parts of a fingerprint but for model and embedder.
    """

    model: str
    answered_as: str
    setups: dict[str, dict[str, Any]]


class Provenance(TypedDict):
    """Where results come from. answers: null when every answer came with the files."""

    version: str
    created_at: str
    eps: float
    files: dict[str, FilePart]
    answers: DrawnAnswers | None
    embedders: list[dict[str, Any]]


class Results(TypedDict):
    """The whole evaluation. num_samples: answers per prompt that scores and fits use.

    verdict: sentences for the top of the page. cautions: those of `warnings` that have a code.
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
    provenance: Provenance
    verdict: list[str]
    cautions: list[PlainWarning]


def ran(
    name: str, title: str, headline: Mapping[str, Value], points: Sequence[Mapping[str, object]]
) -> Experiment:
    """Return an experiment that ran."""
    return {
        "name": name,
        "title": title,
        "ran": True,
        "reason": "",
        "headline": dict(headline),
        "points": [cast("TableRow", dict(row)) for row in points],
    }


def not_run(name: str, title: str, reason: str) -> Experiment:
    """Return an experiment that did not run, and why."""
    return {"name": name, "title": title, "ran": False, "reason": reason, "headline": {}, "points": []}


def unless_empty(experiment: Experiment, reason: str, *columns: str) -> Experiment:
    """Return the experiment; as one that did not run where none of these columns of its table has a value."""
    known = any(row[column] is not None for row in experiment["points"] for column in columns)
    return experiment if known else not_run(experiment["name"], experiment["title"], reason)


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file. supplied: whether it came with its answers; name, sha256: None of a job's upload."""

    supplied: bool
    name: str | None = None
    sha256: str | None = None


def provenance(
    files: Mapping[str, DataFile],
    answers: DrawnAnswers | None,
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
        "files": {
            split: {
                "name": one.name,
                "sha256": one.sha256,
                "answers_from": "file" if one.supplied else "model",
            }
            for split, one in files.items()
        },
        "answers": answers,
        "embedders": [asdict(one) for one in embedders],
    }
