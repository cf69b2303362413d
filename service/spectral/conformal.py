"""Whether a prompt is like those of a dev set: split-conformal p-values (**ours**, method, section 12).

Vovk, Gammerman, Shafer, *Algorithmic Learning in a Random World*, 2005; the score of a question is that of
nearest-neighbour anomaly detection. Two tests, of the question and of the answers' length, joined by
Bonferroni.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
NEIGHBOURS = 5
MIN_QUESTIONS = 2  # with one alone there is none to compare it with


@dataclass(frozen=True, eq=False)
class ConformalReference:
    """What the prompts of a dev set are like.

    questions: unit vectors (n, d) of distinct questions, n = 0 where prompts have no text. lengths: words of
    each answer (k, m) of k prompts, in the order drawn. judged: words (j,) of the answers that j <= k rows
    give to be judged.
    """

    questions: NDArray[np.float32]
    lengths: NDArray[np.int32]
    judged: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))

    def p_value(self, question: NDArray[np.float32] | None, lengths: NDArray[np.int_]) -> float | None:
        """Return the p-value of a prompt that is like the rows, in (0, 1]. Lower = less like them.

        question: unit vector (d,), None for a prompt without text; lengths: words of its m' <= m answers,
        empty where none was drawn. None where there is neither. Where both are there, at least 2 / (n + 1) by
        the question and 4 / (k + 1) by the length; half of that by one alone. With fewer than 200 rows
        (100 without questions) the length alone cannot bring it below 0.02; `length_range` can show it.
        """
        p_values = [self._of_lengths(lengths)] if lengths.size else []
        if question is not None and len(self.questions) >= MIN_QUESTIONS:
            p_values.append(self._of_question(question))
        # Two tests, each at half the level; of one there is one.
        return min(1.0, len(p_values) * min(p_values)) if p_values else None

    @cached_property
    def length_range(self) -> tuple[int, int]:
        """The fewest and the most words of any answer of the rows, drawn or judged.

        The length of one further answer to a prompt like the k rows' is outside with probability
        2 / (k + 1) at most.
        """
        every = np.concatenate([self.lengths.ravel(), self.judged])
        return int(every.min()), int(every.max())

    def _of_question(self, question: NDArray[np.float32]) -> float:
        score = distances((self.questions @ question)[None])[0]
        return float((1 + np.sum(self._scores >= score)) / (len(self.questions) + 1))

    def _of_lengths(self, lengths: NDArray[np.int_]) -> float:
        """Return the p-value by the mean length, on both sides."""
        # Of as many answers: the mean of few spreads more than that of many.
        count = min(len(lengths), self.lengths.shape[1])
        known = self._sums[:, count - 1] / count
        mean = lengths.mean()
        least = min(np.sum(known <= mean), np.sum(known >= mean))
        return float(min(1.0, 2 * (1 + least) / (len(known) + 1)))

    @cached_property
    def _sums(self) -> NDArray[np.int64]:
        """The words of the first answers of each row, by their number, (k, m)."""
        return np.cumsum(self.lengths, axis=1)

    @cached_property
    def _scores(self) -> Floats:
        """The score of each question (n,) among the others."""
        cosines = self.questions @ self.questions.T
        np.fill_diagonal(cosines, -np.inf)
        return distances(cosines, among=len(self.questions) - 1)


def distances(cosines: NDArray[np.float32], *, among: int | None = None) -> Floats:
    """Return one minus the mean of the five largest cosines of each row (k, n), in [0, 2].

    among: how many of the n count where the rest are -inf. Of fewer than five, all.
    """
    nearest = min(NEIGHBOURS, cosines.shape[1] if among is None else among)
    largest = np.partition(cosines, -nearest, axis=1)[:, -nearest:]
    return np.asarray(1.0 - largest.mean(axis=1, dtype=np.float64))
