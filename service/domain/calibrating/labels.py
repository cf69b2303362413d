"""Which answers are right: as the data say, or by ROUGE-L against the references (method, section 4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from service.domain.calibrating.material import Material
from service.spectral.batch import Answers
from service.spectral.gram import spectrum
from service.spectral.rouge import correct

TIE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """right: (n,) bool of the full rows. source: who said so."""

    right: NDArray[np.bool_]
    source: Literal["data", "rouge_l", "mixed"]


def dominant(answers: Answers, texts: Sequence[str]) -> str:
    """Return the answer that a score would give: the largest projection on u_1, ties to the most frequent."""
    counts = np.bincount(answers.index, minlength=len(answers.vectors))
    squared = np.square(spectrum(answers.vectors, counts).projections[:, 0])
    tied = np.flatnonzero(squared >= squared.max() - TIE)
    return texts[int(tied[np.argmax(counts[tied])])]


def label(material: Material) -> Labels:
    """Return right or wrong for each full row: as given, else its `answer` or dominant one by ROUGE-L."""
    given = [material.rows[i].row.correct for i in material.full]
    right = [_right(material, int(i)) for i in material.full]
    known = sum(one is not None for one in given)
    source: Literal["data", "rouge_l", "mixed"] = "mixed"
    if known in (0, len(given)):
        source = "data" if known else "rouge_l"
    return Labels(np.array(right), source)


def _right(material: Material, position: int) -> bool:
    row = material.rows[position].row
    if row.correct is not None:
        return row.correct
    said = row.answer
    if said is None:
        said = dominant(material.answers[position], material.texts[position])
    return correct(said, row.references)
