"""Who was right, and what the first answers of a row say of the text that was judged (method, section 8).

That text is the row's own `answer`, or else its dominant answer, which may be another for fewer answers. A
verdict without an `answer` is about the dominant one of all answers: another text is judged by its words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.calibration.calibration import (
    JudgedTexts,
    answer_features,
    claim_features,
    token_features,
)
from service.calibration.material import FULL_SHARE, Material
from service.calibration.rows import DevRow, Verdict
from service.claims.refusals import is_refusal, is_unanswered
from service.claims.verdicts import correct, verdict
from service.embedding.port import log_probabilities
from service.spectral.dev_set import (
    NO_OVERLAP,
    Answers,
    AnyMap,
    DevSet,
    Weighted,
    born_probabilities,
    dominant,
    overlaps,
    served_entropies,
    served_lambda_max,
    solve,
    supported,
    weighted,
)
from service.spectral.evidence import POSITIVE_ROUNDING, missing_mass

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Mask = NDArray[np.int_] | NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """n prompts as some of their answers show them, and a text of each that was judged.

    rows: their spectra, with the references as targets; texts: the same with the judged text as target.
    right: (n,) verdicts. refused: (n,) whether the judged text, or most answers, refuse to answer. groups:
    (n,), as `Material.full_groups`. tokens: further features (n,) of the judged texts, by their own
    log-probabilities.
    """

    rows: DevSet
    texts: DevSet
    right: NDArray[np.bool_]
    refused: NDArray[np.bool_]
    groups: NDArray[np.int_] | None = None
    tokens: Mapping[str, Floats] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.right.size

    def take(self, rows: Mask) -> "Judged":
        """Return the prompts selected by an index or mask."""
        return Judged(
            self.rows.take(rows),
            self.texts.take(rows),
            self.right[rows],
            self.refused[rows],
            None if self.groups is None else self.groups[rows],
            {name: column[rows] for name, column in self.tokens.items()},
        )

    @property
    def supported(self) -> NDArray[np.bool_]:
        """Whether a drawn answer supports the judged text or the claim, and neither refuses, (n,).

        Else no score lets it through.
        """
        found = supported(self.texts) if self.groups is None else self.texts.outside < 1 - NO_OVERLAP
        return found & ~self.refused

    def columns(self, map_: AnyMap) -> dict[str, ArrayLike]:
        """Return the features (n,) of the judged texts under a map, as one score has them.

        Raises ValueError where the map needs missing masses that the rows lack.
        """
        p = born_probabilities(map_, self.texts)
        if self.groups is None:
            return {**answer_features(served_lambda_max(map_, self.rows), p), **self.tokens}
        return {**claim_features(p, served_entropies(map_, self.rows)), **self.tokens}


@dataclass(frozen=True, slots=True, eq=False)
class JudgedClaims:
    """n claims that their tokens' log-probabilities judge, without any answer drawn.

    tokens: features (n,); right: (n,) verdicts; groups: as `Material.full_groups`, of these.
    """

    tokens: Mapping[str, Floats]
    right: NDArray[np.bool_]
    groups: NDArray[np.int_]

    def __len__(self) -> int:
        return self.right.size

    @property
    def supported(self) -> NDArray[np.bool_]:
        """Whether a score may let each through, (n,): any."""
        return np.ones(self.right.size, dtype=np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class JudgedAlone:
    """The rows whose judged text has log-probabilities of its own, judged by these: no answer is drawn.

    known: (N,) which of the full rows they are. texts: answers, each as if it were the one answer drawn, or
    claims; judged: whose texts they are.
    """

    known: NDArray[np.bool_]
    texts: Judged | JudgedClaims
    judged: JudgedTexts


class FullRows:
    """The full rows of a material, for any number of their first answers: verdicts, spectra, evidence."""

    def __init__(self, material: Material) -> None:
        self.material = material
        self.groups = material.full_groups
        self._rows = [material.rows[i] for i in material.full]
        self._texts = [material.texts[i] for i in material.full]
        self._overlaps = [overlaps(material.answers[i]) for i in material.full]
        self._own = [_own(material, int(i)) for i in material.full]
        self._totals = [log_probabilities(one.draws) for one in self._rows]
        problems = [weighted(one) for one in self._overlaps]
        self.dev = self._solved(problems, self._missing_mass(material.num_samples))
        self._of_all = self._dominant(problems)
        # Comparing texts takes longer than the rest; most answers stay dominant as others join them.
        self._verdicts: dict[tuple[int, int], bool] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The verdict on each row: as given, else on its `answer` or the dominant one by its words."""
        texts = [
            self._texts[row][answer] if one.answer is None else one.answer
            for row, (one, answer) in enumerate(zip(self._rows, self._of_all, strict=True))
        ]
        return [_verdict(one, text) for one, text in zip(self._rows, texts, strict=True)]

    @cached_property
    def right(self) -> NDArray[np.bool_]:
        """Whether each row was answered right (n,)."""
        return np.array([one.correct for one in self.verdicts])

    @cached_property
    def _refusals(self) -> list[NDArray[np.bool_]]:
        """Which distinct answers of each row refuse to answer."""
        pairs = zip(self._rows, self._texts, strict=True)
        return [np.array([is_refusal(text, one.question) for text in texts]) for one, texts in pairs]

    @property
    def source(self) -> Literal["data", "rule", "mixed"]:
        """Return the source of the verdicts: the data, or the rule of `service.claims.verdicts`."""
        given = {one.rule == "given" for one in self.verdicts}
        return "mixed" if len(given) == 2 else "data" if given == {True} else "rule"

    def why_no_evidence(self) -> str | None:
        """Return why no evidence map can be fitted, as a sentence; None where it can."""
        if self.groups is not None:
            return "Log-probabilities of whole answers say nothing of one claim."
        lacking = sum(totals is None for totals in self._totals)
        if not lacking:
            return None
        return (
            f"{lacking} of {len(self)} prompts have an answer without a log-probability of the whole of it: "
            "the evidence map needs one with every answer."
        )

    @property
    def judged(self) -> JudgedTexts:
        """Return whose texts the verdicts are on."""
        return _kind_of([one is not None for one in self._own], "dominant")

    def at(self, num_samples: int, *, one_text: bool = False) -> Judged:
        """Return what the first `num_samples` answers of each row say.

        one_text: judge, where a row gives no text of its own, the dominant answer of all its answers, however
        few judge it; else that of those few. Losses of different texts do not compare: fewer right ones lower
        them.
        """
        problems = [weighted(one, np.arange(num_samples)) for one in self._overlaps]
        answers = self._of_all if one_text else self._dominant(problems)
        texts = [
            replace(problem, overlaps=replace(one, targets=one.cosines[[answer]] if own is None else own))
            for problem, one, own, answer in zip(problems, self._overlaps, self._own, answers, strict=True)
        ]
        mass = self._missing_mass(num_samples)
        return Judged(
            self._solved(problems, mass),
            self._solved(texts, mass),
            np.array([self._right(row, answer) for row, answer in enumerate(answers)]),
            np.array([self._refused(row, answer, num_samples) for row, answer in enumerate(answers)]),
            self.groups,
        )

    def alone(self) -> JudgedAlone | None:
        """Return what the judged texts say by their own log-probabilities, without any answer drawn.

        A row's text is its `answer`, else the first answer drawn: one that was drawn, as a caller's own is.
        None where fewer than nine texts in ten have a log-probability: those that draws happen to hold are
        right more often than the others.
        """
        if self.groups is not None:
            return self._claims_alone(self.groups)
        found = [self._alone(row) for row in range(len(self._rows))]
        known = np.array([total is not None for _, total, _ in found])
        if known.mean() < FULL_SHARE:
            return None
        rows = np.flatnonzero(known)
        totals = [total for _, total, _ in found if total is not None]
        return JudgedAlone(
            known,
            self._as_drawn(rows, [found[row][0] for row in rows], totals, [found[row][2] for row in rows]),
            _kind_of([self._own[row] is not None for row in rows], "first"),
        )

    def _as_drawn(
        self, rows: Ints, texts: Sequence[str], totals: Sequence[float], right: Sequence[bool]
    ) -> Judged:
        """Return rows with one text each as the only answer drawn; totals: its log-probability in nats."""
        problems, judged = list[Weighted](), list[Weighted]()
        for row in rows.tolist():
            position = int(self.material.full[row])
            answers, vector = self.material.answers[position], self.material.judged[position]
            if vector is None:
                vector = answers.vectors[answers.index[0]]
            only = overlaps(Answers(vector[None], np.zeros(1, dtype=np.intp), answers.references))
            problems.append(weighted(only))
            judged.append(weighted(replace(only, targets=only.cosines)))
        masses = np.array([missing_mass([total], [0]) for total in totals])
        dev, own = self._solved(problems, masses), self._solved(judged, masses)
        questions = [self._rows[row].question for row in rows]
        refused = [is_refusal(*pair) for pair in zip(texts, questions, strict=True)]
        return Judged(dev, own, np.array(right), np.array(refused))

    def _claims_alone(self, groups: NDArray[np.int_]) -> JudgedAlone | None:
        claims = [one.claims[0] for one in self._rows]
        every = [(one.fact_logprob, one.least_logprob, one.logprob) for one in claims]
        known = np.array([None not in one for one in every])
        if known.mean() < FULL_SHARE:
            return None
        told = np.array([one for one in every if None not in one], dtype=np.float64)
        right = np.array([one.correct for one in claims])
        return JudgedAlone(known, JudgedClaims(token_features(*told.T), right[known], groups[known]), "given")

    def _alone(self, row: int) -> tuple[str, float | None, bool]:
        """Return the judged text of a row, its log-probability where it is known, and its verdict."""
        one = self._rows[row]
        draws = one.draws
        if one.answer is None:
            text, totals, index = draws[0].text, [draws[0].total_logprob], int(self._overlaps[row].index[0])
        else:
            text, totals, index = one.answer.strip(), [one.answer_logprob], -1
            if one.answer_logprob is None:
                totals = [draw.total_logprob for draw in draws if draw.text == text]
        # NaN is none.
        known = [total for total in totals if total is not None and total <= POSITIVE_ROUNDING]
        return text, max(known, default=None), self._right(row, index)

    def _solved(self, problems: Sequence[Weighted], mass: Floats | None) -> DevSet:
        return replace(solve(problems, self.material.dimension), missing_mass=mass)

    def _dominant(self, problems: Sequence[Weighted]) -> list[int]:
        """Return which distinct answer of each row is dominant; -1 where the row gives a text of its own."""
        answers = np.full(len(problems), -1)
        lacking = [i for i, own in enumerate(self._own) if own is None]
        if lacking:
            answers[lacking] = dominant([problems[i] for i in lacking])
        return answers.tolist()

    def _right(self, row: int, answer: int) -> bool:
        if (row, answer) not in self._verdicts:
            one = self._rows[row]
            # A verdict without an answer is no verdict on what only the first answers say.
            given = one.correct if answer == self._of_all[row] else None
            text = self._texts[row][answer] if one.answer is None else one.answer
            self._verdicts[row, answer] = correct(text, one.references) if given is None else given
        return self._verdicts[row, answer]

    def _refused(self, row: int, answer: int, num_samples: int) -> bool:
        """Return whether no score would let a row's text through, since it or most first answers refuse."""
        if self.groups is not None:
            return False
        one, refuses = self._rows[row], self._refusals[row]
        judged = bool(refuses[answer]) if one.answer is None else is_refusal(one.answer, one.question)
        return is_unanswered(judged, refuses[self._overlaps[row].index[:num_samples]])

    def _missing_mass(self, num_samples: int) -> Floats | None:
        """Return the missing masses (n,) of the first answers; None unless each has a log-probability."""
        masses = []
        for row, totals, one in zip(self._rows, self._totals, self._overlaps, strict=True):
            # The first may all have one where a later one has none.
            first = log_probabilities(row.draws[:num_samples]) if totals is None else totals[:num_samples]
            if first is None:
                return None
            masses.append(missing_mass(first, one.index[:num_samples]))
        return np.array(masses)


def _kind_of(given: Sequence[bool], other: JudgedTexts) -> JudgedTexts:
    """Return whose texts verdicts are on, by row: given ones, or others."""
    if 0 < sum(given) < len(given):
        return "mixed"
    return "given" if any(given) else other


def _own(material: Material, position: int) -> Floats | None:
    """Return the cosines (1, k) of the row's own text to its distinct answers; None where it gives none."""
    vector, one = material.judged[position], material.answers[position]
    return None if vector is None else overlaps(Answers(one.vectors, one.index, vector[None])).targets


def _verdict(row: DevRow, text: str) -> Verdict:
    if row.correct is not None:
        return Verdict(text, row.correct, "given")
    rule = verdict(text, row.references)
    return Verdict(text, rule != "none", rule)
