"""Where the results of an evaluation come from: files, model, embedders, date, version."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict

from service.domain.models import EmbedderIdentity
from service.spectral.maps import DEFAULT_EPS


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
    """All of it. answers: null when every answer came with the files, which do not say who drew them."""

    version: str
    created_at: str
    eps: float
    files: dict[str, FilePart]
    answers: AnswersPart | None
    embedders: list[dict[str, Any]]


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
