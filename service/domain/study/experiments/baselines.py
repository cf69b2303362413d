"""Other people's scores on the same answers, beside ours: by meaning, by words, by log-probabilities."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from service.domain.devdata.reader import Recorded
from service.domain.study.bench import Bench
from service.domain.study.experiments.correctness import auroc_row, one_class, scores
from service.domain.study.experiments.meanings import Meanings
from service.domain.study.model import Experiment, TableRow, not_run, ran
from service.domain.study.split import Split
from service.spectral.semantic_entropy import HEAT_TIME, kernel_language_entropy, semantic_entropy
from service.spectral.text_scores import best_log_likelihood, lexical_similarity, per_word, predictive_entropy

Floats = NDArray[np.float64]
NAME, TITLE = "baselines", "Baselines on the same answers"
NO_LOGPROBS = "not run: the answers carry no log-probabilities"


@dataclass(frozen=True, slots=True, eq=False)
class Likelihoods:
    """Log-probabilities in nats, one array (m,) per prompt.

    normalised: per `unit`: tokens where their number is known (answers drawn here, or a file that tells),
    else words; totals: of whole answers, None where only the mean per token is known.
    """

    normalised: Sequence[Floats]
    totals: Sequence[Floats] | None
    unit: Literal["token", "word"]


def recorded(split: Split, by_line: Mapping[int, Recorded]) -> Likelihoods | None:
    """Return those of a file's `logprob`, over `tokens` if every prompt has them; None when one lacks it."""
    m = split.material.num_samples
    rows = [split.material.rows[int(i)] for i in split.material.full]
    found = [by_line.get(one.row.line, Recorded()) for one in rows]
    totals = _whole([one.logprob for one in found], m)
    if totals is None:
        return None
    tokens = _whole([one.tokens for one in found], m)
    if tokens is not None:
        return Likelihoods([t / n for t, n in zip(totals, tokens, strict=True)], totals, "token")
    pairs = zip(totals, rows, strict=True)
    return Likelihoods([per_word(t, [d.text for d in one.draws]) for t, one in pairs], totals, "word")


def _whole(values: Iterable[Sequence[float]], m: int) -> list[Floats] | None:
    """Return the first m of each; None when one has fewer, or holds what is no number."""
    found = [np.array(one[:m], dtype=np.float64) for one in values]
    return None if any(one.size < m or not np.isfinite(one).all() for one in found) else found


def drawn(split: Split) -> Likelihoods | None:
    """Return those that came with answers drawn here (mean per token); None when a sample lacks its own."""
    found = []
    for i in split.material.full:
        values = [draw.logprob for draw in split.material.rows[int(i)].draws]
        if any(value is None for value in values):
            return None
        found.append(np.array(values, dtype=np.float64))
    return Likelihoods(found, None, "token")


def baselines(bench: Bench, meanings: Meanings, likelihoods: Likelihoods | None) -> Experiment:
    """Return AUROC with interval and rejection area of every score; entropies are negated."""
    if reason := one_class(bench):
        return not_run(NAME, TITLE, reason)
    points: list[TableRow] = [
        {"score": name, "note": note, **auroc_row(values, bench)}
        for name, note, values in _all(bench, meanings, likelihoods)
    ]
    headline: TableRow = {str(p["score"]): p["auroc"] for p in points}
    headline["meanings"] = meanings.source
    headline["log_probabilities"] = f"per {likelihoods.unit}" if likelihoods else NO_LOGPROBS
    return ran(NAME, TITLE, headline, points)


def _all(
    bench: Bench, meanings: Meanings, likelihoods: Likelihoods | None
) -> Iterator[tuple[str, str, Floats]]:
    for name, kind, values in scores(bench):
        yield f"{kind} ({name})", "spectral", values
    yield from _by_meaning(bench.test, meanings)
    yield from _by_words(bench.test)
    if likelihoods is not None:
        yield from _by_likelihood(likelihoods)


def _by_meaning(test: Split, meanings: Meanings) -> Iterator[tuple[str, str, Floats]]:
    pairs = list(zip(meanings.prompts, test.counts, test.answers, strict=True))
    # Entropies are negated below: every score rises with certainty.
    discrete = [semantic_entropy(m.equivalent, c) for m, c, _ in pairs]
    kernel = [kernel_language_entropy(m.similarity, a.index) for m, _, a in pairs]
    yield "discrete semantic entropy", meanings.source, -np.array(discrete)
    note = f"heat kernel, t = {HEAT_TIME:g}; {meanings.source}"
    yield "kernel language entropy", note, -np.array(kernel)


def _by_words(test: Split) -> Iterator[tuple[str, str, Floats]]:
    pairs = list(zip(test.texts, test.counts, strict=True))
    yield (
        "lexical similarity",
        "mean pairwise ROUGE-L",
        np.array([lexical_similarity(t, c) for t, c in pairs]),
    )
    yield "number of distinct answers", "negated", -np.array([float(len(t)) for t, _ in pairs])


def _by_likelihood(known: Likelihoods) -> Iterator[tuple[str, str, Floats]]:
    note = f"log-probability per {known.unit}"
    best = [best_log_likelihood(one) for one in known.normalised]
    yield "length-normalised log-likelihood", f"{note}, of the likeliest sample", np.array(best)
    normalised = [predictive_entropy(one) for one in known.normalised]
    yield "length-normalised predictive entropy", note, -np.array(normalised)
    if known.totals is not None:
        whole = [predictive_entropy(one) for one in known.totals]
        yield "predictive entropy", "log-probability of whole answers", -np.array(whole)
