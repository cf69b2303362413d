"""Other people's scores on the same answers, beside ours."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from service.domain.study.bench import Bench
from service.domain.study.experiments.correctness import auroc_row, one_class, scores
from service.domain.study.experiments.meanings import Meanings
from service.domain.study.likelihoods import Likelihoods
from service.domain.study.model import Experiment, TableRow, not_run, ran
from service.domain.study.split import Split
from service.spectral.kernel_entropy import HEAT_TIME, kernel_language_entropy
from service.spectral.lexical import lexical_similarity
from service.spectral.likelihood import best_log_likelihood, predictive_entropy
from service.spectral.semantic_entropy import semantic_entropy

Floats = NDArray[np.float64]
NAME, TITLE = "baselines", "Baselines on the same answers"
NO_LOGPROBS = "not run: the answers carry no log-probabilities"


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
