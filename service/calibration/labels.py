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

from service.calibration.calibration import JudgedTexts, answer_features, claim_features, features
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
    solve,
    supported,
    weighted,
)
from service.spectral.evidence import POSITIVE_ROUNDING, missing_mass
from service.spectral.text_scores import num_words

Floats = NDArray[np.float64]
Mask = NDArray[np.int_] | NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """n prompts as some of their answers show them, and a text of each that was judged.

    rows: their spectra, with the references as targets; texts: the same with the judged text as target.
    right: (n,) verdicts. refused: (n,) whether the judged text, or most answers, refuse to answer. evidence:
    missing mass, mean log-probability, log-probability per word, (n,) each;
    empty where an answer of any prompt has no log-probability. groups: (n,), as `Material.full_groups`.
    tokens: further features (n,) of the judged texts, by their own log-probabilities.
    """

    rows: DevSet
    texts: DevSet
    right: NDArray[np.bool_]
    refused: NDArray[np.bool_]
    evidence: tuple[Floats, ...] = ()
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
            tuple(column[rows] for column in self.evidence),
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
        p, entropy = born_probabilities(map_, self.texts), served_entropies(map_, self.rows)
        return {**features(p, entropy, *self.evidence), **self.tokens}


@dataclass(frozen=True, slots=True, eq=False)
class JudgedAlone:
    """The n prompts whose judged text has a log-probability of its own, and what it says.

    known: (N,) which of the full rows they are. columns: features (n,); right: (n,) verdicts; supported: (n,)
    whether the text is no refusal; judged: whose texts they are on. groups: as `Material.full_groups`, of
    these.
    """

    known: NDArray[np.bool_]
    columns: Mapping[str, ArrayLike]
    right: NDArray[np.bool_]
    supported: NDArray[np.bool_]
    judged: JudgedTexts
    groups: NDArray[np.int_] | None = None

    def __len__(self) -> int:
        return self.right.size


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
        self._lengths = [num_words([draw.text for draw in one.draws]) for one in self._rows]
        problems = [weighted(one) for one in self._overlaps]
        self.dev = self._solved(problems, self._evidence(material.num_samples))
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
        evidence = self._evidence(num_samples)
        return Judged(
            self._solved(problems, evidence),
            self._solved(texts, evidence),
            np.array([self._right(row, answer) for row, answer in enumerate(answers)]),
            np.array([self._refused(row, answer, num_samples) for row, answer in enumerate(answers)]),
            evidence,
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
        pairs = [(text, total) for text, total, _ in found if total is not None]
        refused = [is_refusal(found[row][0], self._rows[row].question) for row in np.flatnonzero(known)]
        return JudgedAlone(
            known,
            answer_features([total for _, total in pairs], [text for text, _ in pairs]),
            np.array([right for *_, right in found])[known],
            ~np.array(refused),
            _kind_of([own is not None for own, has in zip(self._own, known, strict=True) if has], "first"),
        )

    def _claims_alone(self, groups: NDArray[np.int_]) -> JudgedAlone | None:
        claims = [one.claims[0] for one in self._rows]
        pairs = [(one.logprob_per_word, one.least_logprob) for one in claims]
        known = np.array([None not in pair for pair in pairs])
        if known.mean() < FULL_SHARE:
            return None
        told = np.array([pair for pair in pairs if None not in pair], dtype=np.float64)
        right = np.array([one.correct for one in claims])
        every = np.ones(len(told), dtype=np.bool_)
        return JudgedAlone(known, claim_features(*told.T), right[known], every, "given", groups[known])

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

    def _solved(self, problems: Sequence[Weighted], evidence: tuple[Floats, ...]) -> DevSet:
        """Return the dev set of the problems, with their missing masses where there is evidence."""
        found = solve(problems, self.material.dimension)
        return replace(found, missing_mass=evidence[0]) if evidence else found

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

    def _evidence(self, num_samples: int) -> tuple[Floats, ...]:
        """Return what `Judged` holds of the first answers' log-probabilities, (n,) each, if all have one."""
        rows = []
        parts = zip(self._rows, self._totals, self._lengths, self._overlaps, strict=True)
        for row, totals, lengths, one in parts:
            # The first may all have one where a later one has none.
            first = log_probabilities(row.draws[:num_samples]) if totals is None else totals[:num_samples]
            if first is None:
                return ()
            mass, spoken = missing_mass(first, one.index[:num_samples]), first / lengths[:num_samples]
            rows.append((mass, first.mean(), spoken.mean()))
        return tuple(np.array(rows).T)


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
