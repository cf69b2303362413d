"""Whether answers are right, by rows and by numbers of answers; a material with fewer of either."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.calibration.calibration import JudgedTexts, features
from service.calibration.material import Material
from service.calibration.rows import StoredRow, Verdict
from service.embedding.outcomes import log_probabilities
from service.spectral.born import born_probabilities, supported
from service.spectral.dev_set import (
    Answers,
    DevSet,
    Weighted,
    dominant,
    overlaps,
    served_entropies,
    solve,
    weighted,
)
from service.spectral.evidence import EvidenceMap, mean_log_probability, missing_mass
from service.spectral.maps import CalibrationMap
from service.spectral.text_scores import correct, rouge_l, why_correct


def first_answers(material: Material, num_samples: int) -> Material:
    """Return the first `num_samples` answers of each row that has as many: all are full, vectors are views.

    For the same rows at every number, `only(material, material.full)` first.
    """
    kept = [i for i, one in enumerate(material.answers) if one.index.size >= num_samples]
    return _shortened(only(material, kept), num_samples)


def only(material: Material, positions: Sequence[int] | NDArray[np.int_]) -> Material:
    """Return some of the rows, in the order of their positions."""
    chosen = [int(i) for i in positions]
    return replace(
        material,
        rows=[material.rows[i] for i in chosen],
        answers=[material.answers[i] for i in chosen],
        texts=[material.texts[i] for i in chosen],
        full=np.flatnonzero(np.isin(chosen, material.full)),
        # Empty in a material that was made without them.
        totals=[material.totals[i] for i in chosen] if material.totals else (),
        judged=[material.judged[i] for i in chosen] if material.judged else (),
        questions=[material.questions[i] for i in chosen] if material.questions else (),
    )


def _shortened(material: Material, num_samples: int) -> Material:
    pairs = list(zip(material.answers, material.texts, strict=True))
    # Distinct answers come in order of appearance: the first draws have the first of them.
    seen = [int(one.index[:num_samples].max()) + 1 for one, _ in pairs]
    return replace(
        material,
        rows=[replace(one, draws=one.draws[:num_samples]) for one in material.rows],
        answers=[_cut(one, k, num_samples) for (one, _), k in zip(pairs, seen, strict=True)],
        texts=[texts[:k] for (_, texts), k in zip(pairs, seen, strict=True)],
        full=np.arange(len(pairs)),
        num_samples=num_samples,
        totals=[first_totals(material, i, num_samples) for i in range(len(pairs))],
    )


def _cut(one: Answers, distinct: int, num_samples: int) -> Answers:
    return Answers(one.vectors[:distinct], one.index[:num_samples], one.references)


def first_totals(material: Material, position: int, num_samples: int) -> NDArray[np.float64] | None:
    """Return the log-probability of each of a row's first answers; None where one of them has none."""
    known = material.totals[position] if material.totals else None
    if known is not None:
        return known[:num_samples]
    # The first may all have one where a later one has none.
    return log_probabilities(material.rows[position].draws[:num_samples])


# Who was right, and what the first answers of a row say of the text that was judged (method, section 8).
#
# That text is the row's own `answer`, or else its dominant answer, which may be another for fewer answers. A
# verdict without an `answer` is about the dominant one of all answers: another text is right by ROUGE-L.

Floats = NDArray[np.float64]
Mask = NDArray[np.int_] | NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """right: (n,) bool of the full rows. source: who said so. verdicts: of each, as told to people."""

    right: NDArray[np.bool_]
    source: Literal["data", "rouge_l", "mixed"]
    verdicts: Sequence[Verdict] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """n prompts as some of their answers show them, and a text of each that was judged.

    rows: their spectra, with the references as targets; texts: the same with the judged text as target.
    right: (n,) verdicts. missing_mass, mean_log_probability: (n,) each; None where an answer of any
    prompt has no log-probability.
    """

    rows: DevSet
    texts: DevSet
    right: NDArray[np.bool_]
    missing_mass: Floats | None = None
    mean_log_probability: Floats | None = None

    def __len__(self) -> int:
        return self.right.size

    def take(self, rows: Mask) -> "Judged":
        """Return the prompts selected by an index or mask."""
        found = [None if one is None else one[rows] for one in (self.missing_mass, self.mean_log_probability)]
        return Judged(self.rows.take(rows), self.texts.take(rows), self.right[rows], *found)

    def over(self, map_: CalibrationMap | EvidenceMap) -> CalibrationMap:
        """Return the map of these prompts' eigenvalues. Raises ValueError where it needs what they lack."""
        if not isinstance(map_, EvidenceMap):
            return map_
        if self.missing_mass is None:
            raise ValueError("the map needs a log-probability of every answer")
        return map_.over(self.missing_mass)

    @property
    def supported(self) -> NDArray[np.bool_]:
        """Whether an answer drawn supports the judged text, (n,): else no score lets it through."""
        return supported(self.texts)

    def columns(self, map_: CalibrationMap | EvidenceMap) -> dict[str, ArrayLike]:
        """Return the features (n,) of the judged texts under a map, as one score has them."""
        served = self.over(map_)
        p, entropy = born_probabilities(served, self.texts), served_entropies(served, self.rows)
        return features(p, entropy, self.missing_mass, self.mean_log_probability)


class FullRows:
    """The full rows of a material, ready for any number of their first answers; vectors are forgotten.

    one_text: judge, where a row gives no text of its own, the dominant answer of all its answers, however few
    judge it; else that of those few. Losses of different texts do not compare: fewer right ones lower them.
    """

    def __init__(self, material: Material, *, one_text: bool = False) -> None:
        self._material = material
        self._one_text = one_text
        self._overlaps = [overlaps(material.answers[i]) for i in material.full]
        self._own = [_own(material, int(i)) for i in material.full]
        self._of_all = self._said([weighted(one) for one in self._overlaps])
        # ROUGE-L takes longer than the rest; most answers stay dominant as others join them.
        self._known: dict[tuple[int, int], bool] = {}

    @property
    def judged(self) -> JudgedTexts:
        """Return whose texts the verdicts are on."""
        given = sum(own is not None for own in self._own)
        if 0 < given < len(self._own):
            return "mixed"
        return "given" if given else "dominant"

    def at(self, num_samples: int) -> Judged:
        """Return what the first `num_samples` answers of each row say."""
        problems = [weighted(one, np.arange(num_samples)) for one in self._overlaps]
        said = self._of_all if self._one_text else self._said(problems)
        dimension = self._material.dimension
        texts = [self._about(*parts) for parts in zip(problems, self._own, said, strict=True)]
        right = np.array([self._right(row, answer) for row, answer in enumerate(said)])
        return Judged(
            solve(problems, dimension), solve(texts, dimension), right, *self._evidence(num_samples)
        )

    def _said(self, problems: Sequence[Weighted]) -> list[int]:
        """Return which distinct answer of each row is dominant; -1 where the row gives a text of its own."""
        found = np.full(len(problems), -1)
        lacking = [i for i, own in enumerate(self._own) if own is None]
        if lacking:
            found[lacking] = dominant([problems[i] for i in lacking])
        return [int(one) for one in found]

    @staticmethod
    def _about(problem: Weighted, own: Floats | None, said: int) -> Weighted:
        """Return the problem with the judged text as its only target."""
        one = problem.overlaps
        return replace(problem, overlaps=replace(one, targets=one.cosines[[said]] if own is None else own))

    def _right(self, row: int, said: int) -> bool:
        if (row, said) not in self._known:
            position = self._material.full[row]
            one = self._material.rows[position]
            # A text of the row's own (-1) is judged instead, or has its verdict already.
            text = self._material.texts[position][said]
            # A verdict without an answer is no verdict on what only the first answers say.
            told = said == self._of_all[row]
            given = one.row.correct if told else None
            judged = text if one.row.answer is None else one.row.answer
            self._known[row, said] = correct(judged, one.row.references) if given is None else given
        return self._known[row, said]

    def _evidence(self, num_samples: int) -> tuple[Floats, Floats] | tuple[None, None]:
        """Return missing mass and mean log-probability (n,) of the first answers, where all have one."""
        known = [
            (first_totals(self._material, int(i), num_samples), one.index[:num_samples])
            for i, one in zip(self._material.full, self._overlaps, strict=True)
        ]
        pairs = [(totals, index) for totals, index in known if totals is not None]
        if len(pairs) < len(known):
            return None, None
        missing = [missing_mass(totals, index) for totals, index in pairs]
        return np.array(missing), np.array([mean_log_probability(totals) for totals, _ in pairs])


def _own(material: Material, position: int) -> Floats | None:
    """Return the cosines (1, k) of the row's own text to its distinct answers; None where it gives none."""
    vector = material.judged[position] if material.judged else None
    if vector is None:
        return None
    one = material.answers[position]
    return overlaps(Answers(one.vectors, one.index, vector[None])).targets


def _verdict(one: StoredRow, dominant_text: str) -> Verdict:
    """Return right or wrong: as given, else the row's `answer`, else the dominant one, by its words."""
    said = dominant_text if one.row.answer is None else one.row.answer
    alike = rouge_l(said, one.row.references)
    if one.row.correct is not None:
        return Verdict(said, one.row.correct, "given", alike)
    why = why_correct(said, one.row.references)
    return Verdict(said, why != "none", why, alike)


def columns(material: Material, map_: CalibrationMap | EvidenceMap) -> dict[str, ArrayLike]:
    """Return the features (n,) of the full rows' judged texts under a map.

    For several maps, or numbers of answers: `FullRows(material).at(m).take(rows).columns(map_)`.
    """
    return FullRows(material).at(material.num_samples).columns(map_)


def label(material: Material) -> Labels:
    """Return right or wrong for each full row: as given, else its `answer` or dominant one by its words."""
    rows = [material.rows[i] for i in material.full]
    said = dict.fromkeys(map(int, material.full), "")
    open_ = [i for i in said if material.rows[i].row.answer is None]
    if open_:
        named = dominant([weighted(overlaps(material.answers[i])) for i in open_])
        said |= {i: material.texts[i][one] for i, one in zip(open_, named, strict=True)}
    known = sum(one.row.correct is not None for one in rows)
    source: Literal["data", "rouge_l", "mixed"] = "mixed"
    if known in (0, len(rows)):
        source = "data" if known else "rouge_l"
    verdicts = [_verdict(one, text) for one, text in zip(rows, said.values(), strict=True)]
    return Labels(np.array([one.correct for one in verdicts]), source, verdicts)
