"""Baseline scores from the literature on the same answers.

An NLI model decides which answers mean the same. Without an NLI model, the embedder does, and the results say
so.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lab.rejection import accuracy_rejection
from lab.semantic_entropy import HEAT_TIME, kernel_language_entropy, semantic_entropy
from lab.splits import Split
from lab.text_scores import lexical_similarity, per_word
from lab.two_files import TwoFiles
from service.report.words import finite, ranking

Floats = NDArray[np.float64]

SAME_MEANING = 0.85
BY_EMBEDDING = f"embedding cosine of at least {SAME_MEANING} (no NLI model was used)"
ENTAILMENT, NEUTRAL = 0, 1


# In the order of the columns of `probabilities`.
CLASSES = ("entail", "neutral", "contradict")


class TransformersEntailment:
    """A sequence classifier of the three NLI classes, in this process: a folder, or a name on the model hub.

    Raises ValueError if the model cannot be loaded, or if its labels do not name the classes.
    """

    def __init__(self, name_or_folder: str | Path) -> None:
        from sentence_transformers import CrossEncoder

        self.name = str(name_or_folder).rstrip("/").rsplit("/", 1)[-1]
        try:
            self._model = CrossEncoder(str(name_or_folder))
        except OSError as error:
            raise ValueError(f"the NLI model {self.name!r} cannot be loaded") from error
        # The order of the classes differs between models and is known only from their labels.
        self._order = class_order(self._model.config.id2label)

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Return (n, 3) probabilities of n pairs (premise, hypothesis), in the order of `CLASSES`."""
        if not pairs:
            return np.empty((0, 3))
        rows = np.asarray(self._model.predict(list(pairs), apply_softmax=True), dtype=np.float64)
        return rows[:, self._order]


def class_order(labels: Mapping[int, str]) -> list[int]:
    """Return the indices of entailment, neutral and contradiction among a model's labels.

    >>> class_order({0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"})
    [2, 1, 0]
    """
    places = [
        [place for place, label in labels.items() if label.lower().startswith(name)] for name in CLASSES
    ]
    if len(labels) != len(CLASSES) or any(len(matches) != 1 for matches in places):
        raise ValueError(
            f"the labels of an NLI model must name {', '.join(CLASSES)}: {sorted(labels.values())}"
        )
    return [matches[0] for matches in places]


@dataclass(frozen=True, slots=True, eq=False)
class Meaning:
    """Equivalence (k, k) bool and similarity (k, k) >= 0, symmetric, of a prompt's distinct answers."""

    equivalent: NDArray[np.bool_]
    similarity: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Meanings:
    """The meanings of the prompts of a split. source: how equivalence was decided, in words."""

    source: str
    prompts: Sequence[Meaning]


def by_embedding(split: Split) -> Meanings:
    """Return meanings without an NLI model. Weights are 2 max(cos, 0), in the range of NLI weights."""
    prompts = []
    for answers in split.answers:
        cosines = answers.cosines
        prompts.append(Meaning(cosines >= SAME_MEANING, 2.0 * np.clip(cosines, 0.0, 1.0)))
    return Meanings(BY_EMBEDDING, prompts)


def by_entailment(
    split: Split, model: TransformersEntailment, progress: Callable[[], None] | None = None
) -> Meanings:
    """Return meanings by an NLI model: answers are equivalent if each most likely entails the other.

    Weights are defined as in kernel language entropy: 1 for entailment, 1/2 for neutral, 0 for contradiction,
    as expectation under the model's probabilities, summed over both directions. Each answer follows its
    prompt in the input.
    """
    prompts = []
    for row, texts in zip(split.material.full, split.texts, strict=True):
        prompt = split.material.rows[int(row)].prompt or ""
        prompts.append(_judged(prompt, texts, model))
        if progress is not None:
            progress()
    return Meanings(f"entailment both ways by {model.name}", prompts)


def _judged(prompt: str, texts: Sequence[str], model: TransformersEntailment) -> Meaning:
    size = len(texts)
    # An answer is equivalent to itself, so the model judges only pairs of different answers.
    entails, weight = np.eye(size, dtype=np.bool_), np.eye(size)
    where = [(a, b) for a in range(size) for b in range(size) if a != b]
    if where:
        inputs = [f"{prompt} {text}".strip() for text in texts]
        p = model.probabilities([(inputs[a], inputs[b]) for a, b in where])
        rows, columns = np.array(where).T
        entails[rows, columns] = p.argmax(axis=1) == ENTAILMENT
        weight[rows, columns] = p[:, ENTAILMENT] + p[:, NEUTRAL] / 2
    return Meaning(entails & entails.T, weight + weight.T)


NO_LOGPROBS = "not run: the answers carry no log-probabilities"


@dataclass(frozen=True, slots=True, eq=False)
class Likelihoods:
    """Log-probabilities in nats, one array (m,) per prompt.

    normalized: per `unit`, which is "token" if the numbers of tokens are known, else "word". totals: of whole
    answers, None if only the mean per token is known.
    """

    normalized: Sequence[Floats]
    totals: Sequence[Floats] | None
    unit: Literal["token", "word"]


def likelihoods(split: Split) -> Likelihoods | None:
    """Return the log-probabilities of a split's answers; None if an answer has none."""
    m = split.material.num_samples
    draws = [split.material.rows[int(i)].draws[:m] for i in split.material.full]
    totals = _arrays([[draw.total_logprob for draw in row] for row in draws])
    if totals is not None:
        totals = [np.minimum(values, 0.0) for values in totals]  # above 0 by rounding only
    means = _arrays([[draw.logprob for draw in row] for row in draws])
    if means is not None:
        return Likelihoods(means, totals, "token")
    if totals is None:
        return None
    tokens = _arrays([[draw.num_tokens for draw in row] for row in draws])
    if tokens is not None:
        return Likelihoods([t / n for t, n in zip(totals, tokens, strict=True)], totals, "token")
    pairs = zip(totals, draws, strict=True)
    return Likelihoods([per_word(t, [draw.text for draw in row]) for t, row in pairs], totals, "word")


def _arrays(values: Sequence[Sequence[float | None]]) -> list[Floats] | None:
    """Return the values as arrays; None if a value is missing or not finite."""
    arrays = [np.array(row, dtype=np.float64) for row in values]
    return arrays if all(np.isfinite(row).all() for row in arrays) else None


def baselines(context: TwoFiles, meanings: Meanings) -> dict[str, Any]:
    """Return the AUROC, with interval, and the rejection area of every score; entropies are negated."""
    right, likelihood = context.test.rows.right, likelihoods(context.test)
    scores = [*_by_meaning(context.test, meanings), *_by_words(context.test)]
    if likelihood is not None:
        scores += _by_likelihood(likelihood)
    return {
        "meanings": meanings.source,
        "log_probabilities": f"per {likelihood.unit}" if likelihood else NO_LOGPROBS,
        "rows": [
            {
                "score": name,
                "note": note,
                "auroc": ranking(context.picks, values, context.test.rows.right),
                "rejection_area": finite(accuracy_rejection(values, right).area),
            }
            for name, note, values in scores
        ],
    }


def _by_meaning(test: Split, meanings: Meanings) -> Iterator[tuple[str, str, Floats]]:
    pairs = list(zip(meanings.prompts, test.counts, test.answers, strict=True))
    # Entropies are negated, so that every score rises with certainty.
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


def _by_likelihood(likelihood: Likelihoods) -> Iterator[tuple[str, str, Floats]]:
    """Yield the largest log-probability and negated predictive entropies (Monte Carlo, mean log p), in nats.

    Source: Malinin, Gales, *Uncertainty Estimation in Autoregressive Structured Prediction*, ICLR 2021.
    """
    note = f"log-probability per {likelihood.unit}"
    best = np.array([v.max() for v in likelihood.normalized])
    yield "length-normalized log-likelihood", f"{note}, of the likeliest sample", best
    yield "length-normalized predictive entropy", note, np.array([v.mean() for v in likelihood.normalized])
    if likelihood.totals is not None:
        whole = np.array([v.mean() for v in likelihood.totals])
        yield "predictive entropy", "log-probability of whole answers", whole
