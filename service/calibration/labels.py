"""Verdicts on the rows, and the features of the judged texts under their first answers (method, section 8).

The judged text of a row is its own `answer`, or else its dominant answer, which depends on the number of
answers. A verdict without an `answer` is about the dominant answer of all answers; any other text is judged
by its words.
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
    check_feature,
    claim_features,
    token_features,
)
from service.calibration.material import FULL_SHARE, DevSet
from service.calibration.rows import DevRow, Verdict
from service.claims.refusals import is_refusal, is_unanswered
from service.claims.verdicts import correct, verdict
from service.llm.samples import log_probabilities
from service.spectral.correctness_model import logit_self_check, sigmoid
from service.spectral.dev_set import (
    NO_OVERLAP,
    AnyMap,
    DevSpectra,
    Weighted,
    born_probabilities,
    dominant,
    served_entropies,
    served_lambda_max,
    solve,
    supported,
    weighted,
)
from service.spectral.evidence import POSITIVE_ROUNDING, missing_mass

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
MAX_FITTED = 64  # with more answers, only about this many numbers on a geometric grid are fitted
Mask = NDArray[np.int_] | NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """n prompts with some of their answers, and one judged text for each prompt.

    rows: their spectra, with the references as targets; texts: the same with the judged text as target.
    Without drawn answers, the judged text takes the place of the only answer. right: (n,) verdicts. refused:
    (n,) True if the judged text, or most answers, refuse to answer. source: where the judged texts come from.
    groups: (n,), as `DevSet.full_groups`. tokens: features (n,) of claims without drawn answers. places: (n,)
    positions in `LabelledRows`. p_true: (n,) self-checks of the judged texts; None if they are not used.
    """

    rows: DevSpectra
    texts: DevSpectra
    right: NDArray[np.bool_]
    refused: NDArray[np.bool_]
    source: JudgedTexts
    places: NDArray[np.int_]
    groups: NDArray[np.int_] | None = None
    tokens: Mapping[str, ArrayLike] = field(default_factory=dict)
    p_true: Floats | None = None

    def __len__(self) -> int:
        return self.right.size

    def take(self, rows: Mask) -> "Judged":
        """Return the prompts selected by an index or mask."""
        return replace(
            self,
            rows=self.rows.take(rows),
            texts=self.texts.take(rows),
            right=self.right[rows],
            refused=self.refused[rows],
            places=self.places[rows],
            groups=None if self.groups is None else self.groups[rows],
            tokens={name: np.asarray(column)[rows] for name, column in self.tokens.items()},
            p_true=None if self.p_true is None else self.p_true[rows],
        )

    @property
    def supported(self) -> NDArray[np.bool_]:
        """Whether a score may let the judged text through, (n,).

        An answer must support the text or claim, and neither may be a refusal.
        """
        is_supported = supported(self.texts) if self.groups is None else self.texts.outside < 1 - NO_OVERLAP
        return is_supported & ~self.refused

    def columns(self, map_: AnyMap | None) -> Mapping[str, ArrayLike]:
        """Return the features (n,) of the judged texts under a map, as in a score.

        map_: None for claims without drawn answers. Raises ValueError if the map needs missing masses and the
        rows have none.
        """
        if map_ is None:
            return {**self.tokens, **check_feature(self.p_true)}
        p = born_probabilities(map_, self.texts)
        if self.groups is None:
            return answer_features(served_lambda_max(map_, self.rows), p, self.p_true)
        return claim_features(p, served_entropies(map_, self.rows), self.p_true)


class LabelledRows:
    """Verdicts, spectra and evidence of a material's full rows, for any number of their first answers.

    `p_true`: by full row, the self-check of each of its `texts_to_check` by text; None or absent if unknown.
    Empty: P(correct) is fitted without self-checks. `checked_by`: as `Fingerprint.self_check`.
    `why_unchecked`: why they are not used although they were asked for, else "".
    """

    def __init__(self, material: DevSet) -> None:
        self.material = material
        self.p_true: Sequence[Mapping[str, float | None]] = ()
        self.checked_by = self.why_unchecked = ""
        self.groups = material.full_groups
        self._rows: list[DevRow] = [material.rows[i] for i in material.full]
        self._texts = [material.texts[i] for i in material.full]
        self._overlaps = [material.answers[i] for i in material.full]
        self._own = [material.judged[i] for i in material.full]
        self._totals = [log_probabilities(row.draws) for row in self._rows]
        problems = [weighted(answers) for answers in self._overlaps]
        self.dev = self._solved(problems, self._missing_mass(material.num_samples))
        self._of_all = self._dominant(problems)
        self._leading = {material.num_samples: self._of_all}
        # Comparing texts takes longer than the rest; most answers stay dominant as others join them.
        self._verdicts: dict[tuple[int, int], bool] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def num_rows(self) -> int:
        """The number of rows. For claims, a row is an answer with all its claims."""
        return len(self) if self.groups is None else np.unique(self.groups).size

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The verdict on each row: the given one, else by the words of its `answer` or dominant answer."""
        texts = [
            self._texts[i][answer] if row.answer is None else row.answer
            for i, (row, answer) in enumerate(zip(self._rows, self._of_all, strict=True))
        ]
        return [_verdict(row, text) for row, text in zip(self._rows, texts, strict=True)]

    @cached_property
    def right(self) -> NDArray[np.bool_]:
        """Whether each row was answered right (n,)."""
        return np.array([row_verdict.correct for row_verdict in self.verdicts])

    @cached_property
    def _refusals(self) -> list[NDArray[np.bool_]]:
        """Which distinct answers of each row refuse to answer."""
        pairs = zip(self._rows, self._texts, strict=True)
        return [np.array([is_refusal(text, row.question) for text in texts]) for row, texts in pairs]

    @property
    def source(self) -> Literal["data", "rule", "mixed"]:
        """Return the source of the verdicts: the data, or the rule of `service.claims.verdicts`."""
        from_data = {row_verdict.rule == "given" for row_verdict in self.verdicts}
        return "mixed" if len(from_data) == 2 else "data" if from_data == {True} else "rule"

    def why_no_evidence(self) -> str | None:
        """Return why no evidence map can be fitted, as a sentence; None if one can."""
        if self.groups is not None:
            return "Log-probabilities of whole answers say nothing of one claim."
        lacking = sum(totals is None for totals in self._totals)
        if not lacking:
            return None
        return (
            f"{lacking} of {len(self)} prompts have an answer without a log-probability of the whole text. "
            "The evidence map needs one for every answer."
        )

    @property
    def own_logprob_share(self) -> float:
        """The share of the rows in which the text judged without samples has a log-probability, 0..1."""
        return 1.0 - float(np.isnan(self._own_logprobs).mean())

    @property
    def serves_none(self) -> bool:
        """Whether P(correct) can be fitted without drawn answers.

        90 % of the judged texts must have a log-probability: an `answer` that occurs among the draws has one,
        and such answers are right more often than the others.
        """
        return self.own_logprob_share >= FULL_SHARE

    @property
    def has_own_texts(self) -> bool:
        """Whether each row has its own text, which is judged for any number of answers."""
        return all(own is not None for own in self._own)

    def at(self, num_samples: int, *, one_text: bool = False) -> Judged:
        """Return the rows with the first `num_samples` answers of each.

        one_text: for rows without an own `answer`, True judges the dominant answer of all answers, False the
        dominant answer of the first ones. Losses of different texts are not comparable: the loss also falls
        if fewer texts are right. With 0, the rows are those in which the judged text has a log-probability:
        the row's `answer`, or else the first drawn answer, since a caller's own answer is also a draw.
        """
        if num_samples == 0:
            return self._without_samples()
        problems = [weighted(row, np.arange(num_samples)) for row in self._overlaps]
        answers = self._of_all if one_text else self._leading_of(num_samples, problems)
        texts = [
            replace(problem, overlaps=replace(row, targets=row.cosines[[answer]] if own is None else own))
            for problem, row, own, answer in zip(problems, self._overlaps, self._own, answers, strict=True)
        ]
        mass = self._missing_mass(num_samples)
        return Judged(
            self._solved(problems, mass),
            self._solved(texts, mass),
            np.array([self._right(row, answer) for row, answer in enumerate(answers)]),
            np.array([self._refused(row, answer, num_samples) for row, answer in enumerate(answers)]),
            self._source_of(range(len(self)), "dominant"),
            np.arange(len(self)),
            self.groups,
            p_true=self._checks([(i, self._text(i, answer)) for i, answer in enumerate(answers)]),
        )

    def mean_tokens(self, num_samples: int) -> float | None:
        """Return the mean number of tokens of a row's first answers; None if a count is missing."""
        drawn = [draw.num_tokens for row in self._rows for draw in row.draws[:num_samples]]
        counts = [count for count in drawn if count is not None]
        return sum(counts) / len(self) if len(counts) == len(drawn) else None

    def row(self, i: int) -> DevRow:
        """Return a full row."""
        return self._rows[i]

    def texts_to_check(self) -> list[list[str]]:
        """Return the texts of each row that are judged for some number of answers."""
        texts = [dict[str, None]() for _ in self._rows]
        for size in [*([0] if self.serves_none else []), *fitted_sizes(self.material.num_samples)]:
            if not size:
                leading = [self._own_text(i)[1] for i in range(len(self))]
            else:
                leading = self._leading_of(size, [weighted(row, np.arange(size)) for row in self._overlaps])
            for i, answer in enumerate(leading):
                texts[i][self._text(i, answer)] = None
        return [list(of_row) for of_row in texts]

    @property
    def is_checked(self) -> bool:
        """Whether 90 % of the rows have a self-check, so that P(correct) uses them."""
        known = sum(any(t is not None for t in of_row.values()) for of_row in self.p_true)
        return known >= FULL_SHARE * len(self)

    def _checks(self, texts: Sequence[tuple[int, str]]) -> Floats | None:
        """Return the self-checks (n,) of texts of rows; None if they are not used.

        An unknown one is replaced by the one with the mean logit.
        """
        if not self.is_checked:
            return None
        known = np.array([self.p_true[i].get(text) for i, text in texts], dtype=np.float64)
        mean = float(sigmoid(np.nanmean(logit_self_check(known))))
        return np.where(np.isnan(known), mean, known)

    def _source_of(self, places: Sequence[int], other: JudgedTexts) -> JudgedTexts:
        """Return the source of the texts judged in these rows. other: the source in rows without own text.

        An `answer` that is also drawn for its row is from both sources: "given" only if most are not.
        """
        own = [i for i in places if self._own[i] is not None]
        if not own:
            return other
        drawn = sum(self._text(i, -1) in self._texts[i] for i in own)
        return "given" if len(own) == len(places) and 2 * drawn < len(own) else "mixed"

    def _leading_of(self, num_samples: int, problems: Sequence[Weighted]) -> list[int]:
        if num_samples not in self._leading:
            self._leading[num_samples] = self._dominant(problems)
        return self._leading[num_samples]

    def _text(self, i: int, answer: int) -> str:
        """Return the judged text of a row: its claim or `answer`, else the distinct answer of this index."""
        row = self._rows[i]
        text: str = self._texts[i][answer] if row.answer is None else row.answer.strip()
        return text

    def _without_samples(self) -> Judged:
        places = np.flatnonzero(~np.isnan(self._own_logprobs))
        if self.groups is not None:
            return self._claims_without_samples(places, self.groups[places])
        alone = [self.material.alone[i] for i in self.material.full[places]]
        problems = [weighted(only) for only in alone]
        judged = [weighted(replace(only, targets=only.cosines)) for only in alone]
        masses = np.array([missing_mass([logprob], [0]) for logprob in self._own_logprobs[places]])
        right, refused = list[bool](), list[bool]()
        for place in places.tolist():
            text, index = self._own_text(place)
            right.append(self._right(place, index))
            refused.append(is_refusal(text, self._rows[place].question))
        return Judged(
            self._solved(problems, masses),
            self._solved(judged, masses),
            np.array(right),
            np.array(refused),
            self._source_of(places.tolist(), "first"),
            places,
            p_true=self._checks([(place, self._own_text(place)[0]) for place in places.tolist()]),
        )

    def _claims_without_samples(self, places: Ints, groups: NDArray[np.int_]) -> Judged:
        claims = [self._rows[place].claims[0] for place in places.tolist()]
        logprobs = [(claim.fact_logprob, claim.least_logprob, claim.logprob) for claim in claims]
        tokens = token_features(*np.array(logprobs, dtype=np.float64).reshape(-1, 3).T)
        right, size = np.array([claim.correct for claim in claims]), len(claims)
        ones, zeros = np.ones((size, 1)), np.zeros(size)
        only = DevSpectra(ones, ones, zeros, np.ones(size, dtype=np.int_), self.material.dimension)
        refused = np.zeros(size, dtype=np.bool_)
        checks = self._checks([(place, self._text(place, -1)) for place in places.tolist()])
        return Judged(only, only, right, refused, "given", places, groups, tokens, checks)

    def _own_text(self, i: int) -> tuple[str, int]:
        """Return the text of a row that is judged without samples, and its index among the distinct answers.

        -1 for the row's `answer`.
        """
        row = self._rows[i]
        if row.answer is not None:
            return row.answer.strip(), -1
        return row.draws[0].text, int(self._overlaps[i].index[0])

    @cached_property
    def _own_logprobs(self) -> Floats:
        """The log-probability (n,), in nats, of each text that is judged without samples; NaN if unknown."""
        return np.array([self._own_logprob(i) for i in range(len(self))])

    def _own_logprob(self, i: int) -> float:
        row = self._rows[i]
        totals = [row.draws[0].total_logprob] if row.answer is None else [row.answer_logprob]
        if self.groups is not None:
            [claim] = row.claims
            complete = None not in (claim.fact_logprob, claim.least_logprob, claim.logprob)
            totals = [claim.logprob if complete else None]
        elif row.answer is not None and row.answer_logprob is None:
            text = row.answer.strip()
            totals = [draw.total_logprob for draw in row.draws if draw.text == text]
        # NaN counts as unknown.
        usable = [total for total in totals if total is not None and total <= POSITIVE_ROUNDING]
        return max(usable, default=np.nan)

    def _solved(self, problems: Sequence[Weighted], mass: Floats | None) -> DevSpectra:
        return replace(solve(problems, self.material.dimension), missing_mass=mass)

    def _dominant(self, problems: Sequence[Weighted]) -> list[int]:
        """Return the index of the dominant distinct answer of each row; -1 for rows with their own text."""
        answers = np.full(len(problems), -1)
        lacking = [i for i, own in enumerate(self._own) if own is None]
        if lacking:
            answers[lacking] = dominant([problems[i] for i in lacking])
        return answers.tolist()

    def _right(self, i: int, answer: int) -> bool:
        if (i, answer) not in self._verdicts:
            row = self._rows[i]
            # A verdict without an `answer` is about the dominant answer of all answers only.
            own_verdict = row.correct if answer == self._of_all[i] else None
            text = self._texts[i][answer] if row.answer is None else row.answer
            self._verdicts[i, answer] = (
                correct(text, row.references, row.question or "") if own_verdict is None else own_verdict
            )
        return self._verdicts[i, answer]

    def _refused(self, i: int, answer: int, num_samples: int) -> bool:
        """Return True if the judged text of a row, or most of its first answers, refuse to answer."""
        if self.groups is not None:
            return False
        row, refuses = self._rows[i], self._refusals[i]
        judged = bool(refuses[answer]) if row.answer is None else is_refusal(row.answer, row.question)
        return is_unanswered(judged, refuses[self._overlaps[i].index[:num_samples]])

    def _missing_mass(self, num_samples: int) -> Floats | None:
        """Return the missing masses (n,) of the first answers; None unless each has a log-probability."""
        masses = []
        for row, totals, answers in zip(self._rows, self._totals, self._overlaps, strict=True):
            # The first answers may all have log-probabilities if only a later answer lacks one.
            first = log_probabilities(row.draws[:num_samples]) if totals is None else totals[:num_samples]
            if first is None:
                return None
            masses.append(missing_mass(first, answers.index[:num_samples]))
        return np.array(masses)


def fitted_sizes(num_samples: int) -> list[int]:
    """Return the numbers of answers to fit, ascending from 1: all up to `num_samples`, or a grid."""
    if num_samples <= MAX_FITTED:
        return list(range(1, num_samples + 1))
    return [1, *sorted({int(m) for m in np.rint(np.geomspace(2, num_samples, MAX_FITTED - 1))})]


def _verdict(row: DevRow, text: str) -> Verdict:
    if row.correct is not None:
        return Verdict(text, row.correct, "given")
    rule = verdict(text, row.references, row.question or "")
    return Verdict(text, rule != "none", rule)
