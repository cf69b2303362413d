"""Split-conformal p-values of a prompt under the prompts of a dev set (**ours**, method, section 12).

Two tests, of the question and of the answers' length, are combined by Bonferroni. The score of a question is
its mean distance to the nearest questions, as in nearest-neighbour anomaly detection.

Source: Vovk, Gammerman, Shafer, *Algorithmic Learning in a Random World*, 2005.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
NEIGHBOURS = 5
MIN_QUESTIONS = 2  # a single question has no neighbours


@dataclass(frozen=True, eq=False)
class ConformalReference:
    """Questions and answer lengths of the prompts of a dev set.

    questions: unit vectors (n, d) of distinct questions, n = 0 if prompts have no text. lengths: (k, m),
    number of words of each answer of k prompts, in the order drawn. judged: (j,), number of words of the
    answers that j <= k rows supply for judging.
    """

    questions: NDArray[np.float32]
    lengths: NDArray[np.int32]
    judged: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))

    def p_value(self, question: NDArray[np.float32] | None, lengths: NDArray[np.int_]) -> float | None:
        """Return the p-value of "this prompt is like the rows", in (0, 1]. Lower = less similar.

        question: unit vector (d,), None for a prompt without text. lengths: number of words of its m' <= m
        answers, empty if none was drawn. Returns None without question and answers. With both tests, the
        smallest p-value is 2 / (n + 1) for the question and 4 / (k + 1) for the length; with one test, half
        of that. With fewer than 200 rows (100 without questions) the length alone cannot give a p-value below
        0.02; `length_range` can.
        """
        p_values = [self._of_lengths(lengths)] if lengths.size else []
        if question is not None and len(self.questions) >= MIN_QUESTIONS:
            p_values.append(self._of_question(question))
        # Bonferroni: with two tests, each is at half the level.
        return min(1.0, len(p_values) * min(p_values)) if p_values else None

    @cached_property
    def length_range(self) -> tuple[int, int]:
        """The smallest and the largest number of words of any answer of the rows, drawn or judged.

        The length of one further answer, to a prompt like the k rows, is outside with probability at most
        2 / (k + 1).
        """
        all_lengths = np.concatenate([self.lengths.ravel(), self.judged])
        return int(all_lengths.min()), int(all_lengths.max())

    def _of_question(self, question: NDArray[np.float32]) -> float:
        score = distances((self.questions @ question)[None])[0]
        return float((1 + np.sum(self._scores >= score)) / (len(self.questions) + 1))

    def _of_lengths(self, lengths: NDArray[np.int_]) -> float:
        """Return the two-sided p-value of the mean length."""
        # Compared with means of the same number of answers: means of few answers spread more.
        count = min(len(lengths), self.lengths.shape[1])
        means = self._sums[:, count - 1] / count
        mean = lengths.mean()
        least = min(np.sum(means <= mean), np.sum(means >= mean))
        return float(min(1.0, 2 * (1 + least) / (len(means) + 1)))

    @cached_property
    def _sums(self) -> NDArray[np.int64]:
        """Cumulative number of words over the answers of each row, (k, m)."""
        return np.cumsum(self.lengths, axis=1)

    @cached_property
    def _scores(self) -> Floats:
        """The distance of each question (n,) to its nearest other questions."""
        cosines = self.questions @ self.questions.T
        np.fill_diagonal(cosines, -np.inf)
        return distances(cosines, among=len(self.questions) - 1)


def distances(cosines: NDArray[np.float32], *, among: int | None = None) -> Floats:
    """Return 1 minus the mean of the five largest cosines of each row (k, n), in [0, 2].

    With fewer than five cosines, all count. among: number of finite cosines per row if the rest are -inf.
    """
    nearest = min(NEIGHBOURS, cosines.shape[1] if among is None else among)
    largest = np.partition(cosines, -nearest, axis=1)[:, -nearest:]
    return np.asarray(1.0 - largest.mean(axis=1, dtype=np.float64))
