"""How many texts an upload will have a fit hold in memory, and whether that is too many."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from service.domain.devdata.bytes import UploadLimits
from service.domain.errors import InvalidDevData
from service.domain.jobs.model import DevRow


@dataclass(slots=True)
class TextCount:
    """References, and rows by the number of samples that they carry (0: answers are drawn for them)."""

    references: int = 0
    rows: Counter[int] = field(default_factory=Counter)

    def add(self, row: DevRow) -> None:
        """Count a row."""
        self.references += len(row.references)
        self.rows[len(row.samples or ())] += 1

    def total(self, asked: int | None, drawn: int) -> int:
        """Return answers and references. `asked`: of every row; `drawn`: for rows without, if not asked."""
        return self.references + sum(n * _answers(have, asked, drawn) for have, n in self.rows.items())


def _answers(have: int, asked: int | None, drawn: int) -> int:
    if not have:
        return asked or drawn
    return min(have, asked or have)


def check_size(files: Sequence[TextCount], asked: int | None, limits: UploadLimits) -> None:
    """Raise InvalidDevData when the files of one job hold more texts than `limits` allows together."""
    texts = sum(one.total(asked, limits.num_samples) for one in files)
    if texts > limits.max_texts:
        rows = sum(one.rows.total() for one in files)
        raise InvalidDevData(
            f"{rows} rows make up to {texts} answers and references, more than the {limits.max_texts} whose "
            "vectors may be held in memory; nothing was stored. Send fewer rows, or ask for fewer answers "
            "with num_samples; whoever runs the service may raise EIGENCAL_MAX_CALIBRATION_TEXTS."
        )
