"""The observation of a question: its answers, a candidate, their kernel and spectrum (method, section 1)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from service.claims.refusals import essence, is_refusal
from service.llm.samples import Draw, log_probabilities, with_candidate
from service.scoring.score import Evidence, ScoreWarning, warning
from service.spectral.evidence import mean_log_probability, missing_mass
from service.spectral.spectrum import Spectrum, spectrum_from_gram

Floats = NDArray[np.float64]
EQUAL = 1 - 1e-6  # kernel of two texts that the embedder cannot distinguish


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """The answers to a question, and an optional candidate.

    draws: m answers. texts: k distinct answers. index: (m,), position of each answer in `texts`. Without
    answers, `texts` has only the candidate, and the evidence comes from its log-probability. kernel: (n, n),
    of the texts and, in the last row, of the candidate if it is not one of them. spectrum: of the texts only.
    nearest: (m,), the closest eigenvector of each answer. leaders: the closest text of each eigenvector.
    evidence: None unless every answer has a log-probability. refusals: texts without content, maybe with the
    candidate. indistinct: `indistinct_texts`, maybe with the candidate.
    """

    draws: Sequence[Draw]
    texts: Sequence[str]
    index: NDArray[np.int_]
    candidate: str | None
    kernel: Floats
    spectrum: Spectrum
    nearest: NDArray[np.int_]
    leaders: Sequence[str]
    evidence: Evidence | None
    refusals: frozenset[str]
    indistinct: frozenset[str] = frozenset()

    @property
    def judged(self) -> str:
        """The text that is judged: the candidate or, without one, the leading answer."""
        return self.leaders[0] if self.candidate is None else self.candidate

    def cosines(self, text: str) -> Floats:
        """Return the kernel (k,) of a text, or the candidate, with each distinct answer."""
        place = self.texts.index(text) if text in self.texts else -1
        return self.kernel[place, : len(self.texts)]


def observe(
    draws: Sequence[Draw],
    index: NDArray[np.int_],
    texts: Sequence[str],
    candidate: str | None,
    kernel: Floats,
    dimension: int,
    question: str | None,
    indistinct: frozenset[str] = frozenset(),
) -> Observation:
    """Return the observation of answers and a candidate. dimension: d of the embeddings."""
    count = len(texts)
    found = spectrum_from_gram(kernel[:count, :count], np.bincount(index, minlength=count), dimension)
    evidence = None
    if (totals := log_probabilities(draws)) is not None:
        evidence = Evidence(
            missing_mass=missing_mass(totals, index), mean_logprob=mean_log_probability(totals)
        )
    refusals = frozenset(text for text in with_candidate(texts, candidate) if is_refusal(text, question))
    squares = np.square(found.projections)
    counts = np.bincount(index, minlength=count)
    # Squares within 1e-9 are equal up to rounding: the most frequent answer leads.
    leads = np.where(squares >= squares.max(axis=0) - 1e-9, counts[:, None], -1).argmax(axis=0)
    return Observation(
        draws,
        texts,
        index,
        candidate,
        kernel,
        found,
        squares.argmax(axis=1)[index],
        [texts[i] for i in leads.tolist()],
        evidence,
        refusals,
        indistinct,
    )


def observe_alone(
    candidate: str, log_probability: float, dimension: int, question: str | None
) -> Observation:
    """Return the observation of a candidate only, by its log-probability in nats."""
    alone = [Draw(candidate, total_logprob=log_probability)]
    index = np.zeros(1, dtype=np.int_)
    seen = observe(alone, index, [candidate], candidate, np.ones((1, 1)), dimension, question)
    return replace(seen, draws=())


def indistinct_texts(texts: Sequence[str], compared: Sequence[str], kernel: Floats) -> frozenset[str]:
    """Return the texts that the embedder cannot distinguish from one with different content.

    compared: as in `Reading`. kernel: (n, n), of the texts. Differences in case, accents, spaces and
    punctuation are ignored.
    """
    essence_of = cache(essence)
    first, second = np.nonzero(np.triu(kernel > EQUAL, 1))  # each pair once
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    alike = (pair for pair in pairs if len({essence_of(compared[i]) for i in pair}) > 1)
    return frozenset(texts[i] for pair in alike for i in pair)


def indistinct_answers(observation: Observation) -> list[ScoreWarning]:
    """Return a warning if the embedder cannot distinguish texts with different content."""
    if not observation.indistinct:
        return []
    known = len(observation.kernel)
    message = (
        f"The embedder cannot distinguish {len(observation.indistinct)} of the {known} distinct texts from "
        "texts that say something else (unknown characters, or texts equal up to its input limit). They "
        "count as agreement, and have no probability of being right."
    )
    return [warning("indistinct_answers", message)]
