"""What an evaluation returns: exactly what is written as results.json, and shown on its page.

Numbers are floats; what cannot be computed is null, never NaN. Names of maps: "raw" (no calibration),
"temperature" (the paper's), "depolarized" (ours), "evidence" (ours, by log-probabilities; absent where a row
has none), all fitted on the dev file and applied to the test file.
"""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict

from service.embedding.port import Embedder
from service.report.model import Estimate, Figures, NullPart, PlainWarning
from service.spectral.maps import DEFAULT_EPS


class SplitPart(TypedDict):
    """One file: prompts used of the rows in it, who says what is right, share of right."""

    rows: int
    used: int
    distinct_mean: float
    correct_from: Literal["data", "rouge_l", "mixed"]
    accuracy: float


class FilePart(TypedDict):
    """One file: its name and the SHA-256 of its bytes; null where a job does not keep them.

    answers_from: "file" (it came with them) or "model" (drawn here).
    """

    name: str | None
    sha256: str | None
    answers_from: Literal["file", "model"]


class Provenance(TypedDict):
    """Where results come from.

    answers: by kind of row ("prompt", "messages"), the parts of a fingerprint that the answers were drawn
    with; null when every answer came with the files. embedder: the parts of its identity.
    """

    version: str
    created_at: str
    eps: float
    files: dict[str, FilePart]
    answers: dict[str, dict[str, Any]] | None
    embedder: dict[str, Any]


def provenance(
    version: str, files: dict[str, FilePart], answers: dict[str, dict[str, Any]] | None, embedder: Embedder
) -> Provenance:
    """Return where results that are made now come from."""
    return {
        "version": version,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "eps": DEFAULT_EPS,
        "files": files,
        "answers": answers,
        "embedder": asdict(embedder.identity),
    }


class ComparisonRow(TypedDict):
    """A figure of one map minus that of another, paired by prompt; below 0 is better but for the AUROC.

    figure: of the served maps on test, or "cv_risk", cross-validated on dev. real: whether the interval
    leaves out 0.
    """

    second: str
    first: str
    figure: str
    difference: Estimate
    real: bool


class NaiveRow(TypedDict):
    """The paper's naive diagram of a map (one cluster per bin): its ECE, and both of its nulls."""

    map: str
    ece: float | None
    drawn: NullPart
    rescaled: NullPart


class MeasuresAt(TypedDict):
    """What the paper says is lowest at one temperature of its map, on test: Cal_S and risk in nats, ECE."""

    temperature: float
    cal_s: float | None
    risk: float | None
    eigenvalue_ece: float | None


class CalibrationErrorPart(TypedDict):
    """The calibration error Cal_S of each map, in nats, and the measures over temperatures.

    lowest_at: the temperature of the grid where each measure is lowest; claim: whether the paper's claim,
    that it is one temperature, holds on these files.
    """

    by_map: dict[str, float | None]
    points: list[MeasuresAt]
    lowest_at: dict[str, float | None]
    claim: str


class BaselineRow(TypedDict):
    """Somebody else's score on the same answers; rejection_area: under the accuracy-rejection curve."""

    score: str
    note: str
    auroc: Estimate
    rejection_area: float | None


class BaselinesPart(TypedDict):
    """meanings: who says which answers mean the same; log_probabilities: per what, or why there are none."""

    meanings: str
    log_probabilities: str
    rows: list[BaselineRow]


class Results(Figures):
    """The whole evaluation. num_samples: answers per prompt that scores and fits use.

    method: the map of the lowest cross-validated risk on dev; verdict: what it comes to, in sentences.
    calibration_error: null for more test prompts than all pairs can be kept of.
    """

    version: Literal[1]
    num_samples: int
    seed: int
    method: str
    verdict: list[str]
    dev: SplitPart
    test: SplitPart
    comparison: list[ComparisonRow]
    naive: list[NaiveRow]
    calibration_error: CalibrationErrorPart | None
    baselines: BaselinesPart
    warnings: list[PlainWarning]
    provenance: Provenance
