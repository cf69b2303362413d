"""Other people's scores on the same answers, and answers drawn at another sampling temperature.

Which answers mean the same is for an NLI model to say where one is given, else for the embedder, and named
so. The sampling temperature is chosen on dev, by the ECE of the largest semantic class's share against
correctness, and judged on test by the eigenvalue ECE of the raw spectra of answers drawn at it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from service.calibration.fitting import Stream, rng
from service.evaluation.files import Recorded
from service.evaluation.results import Experiment, TableRow, not_run, ran
from service.report.diagnostics import STANDARD, EvaluationContext, Split, algorithm1_diagnostics, served
from service.report.model import finite
from service.spectral.correctness import accuracy_rejection
from service.spectral.dev_set import overlaps, risks
from service.spectral.maps import Identity
from service.spectral.reliability import projection_reliability, reliability_diagram
from service.spectral.resampling import DEFAULT
from service.spectral.semantic_entropy import (
    HEAT_TIME,
    class_shares,
    kernel_language_entropy,
    semantic_classes,
    semantic_entropy,
)
from service.spectral.text_scores import best_log_likelihood, lexical_similarity, per_word, predictive_entropy

Floats = NDArray[np.float64]

SAME_MEANING = 0.85
BY_EMBEDDING = f"embedding cosine of at least {SAME_MEANING} (no NLI model was used)"
ENTAILMENT, NEUTRAL = 0, 1


class EntailmentModel(Protocol):
    """Natural language inference. `name` says which model in the report."""

    @property
    def name(self) -> str:
        """Return the model's name."""

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """Return (n, 3) for n pairs (premise, hypothesis): entailment, neutral, contradiction; rows sum 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Meaning:
    """The distinct answers to one prompt: equivalent (k, k) bool, similarity (k, k) >= 0, symmetric."""

    equivalent: NDArray[np.bool_]
    similarity: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Meanings:
    """Every prompt of a split. `source`: who says what means the same."""

    source: str
    prompts: Sequence[Meaning]


def by_embedding(split: Split, least: float = SAME_MEANING) -> Meanings:
    """Return the stand-in: equivalent at a cosine of `least`; weights 2 max(cos, 0), the range of NLI's."""
    prompts = []
    for answers in split.answers:
        cosines = overlaps(answers).cosines
        prompts.append(Meaning(cosines >= least, 2.0 * np.clip(cosines, 0.0, 1.0)))
    return Meanings(BY_EMBEDDING, prompts)


def by_entailment(
    split: Split, model: EntailmentModel, progress: Callable[[], None] | None = None
) -> Meanings:
    """Return equivalence by entailment in both directions, as likeliest class.

    Weights are those of kernel language entropy: in each direction 1 for entailment, 1/2 for neutral, 0 for
    contradiction (expected, under the model's probabilities), added up. Answers are put after their prompt.
    """
    prompts = []
    for row, texts in zip(split.material.full, split.texts, strict=True):
        prompt = split.material.rows[int(row)].row.prompt or ""
        prompts.append(_judged(prompt, texts, model))
        if progress is not None:
            progress()
    return Meanings(f"entailment both ways by {model.name}", prompts)


def _judged(prompt: str, texts: Sequence[str], model: EntailmentModel) -> Meaning:
    size = len(texts)
    # An answer means the same as itself; the model is asked about pairs only.
    entails, weight = np.eye(size, dtype=np.bool_), np.eye(size)
    where = [(a, b) for a in range(size) for b in range(size) if a != b]
    if where:
        put = [f"{prompt} {text}".strip() for text in texts]
        p = model.probabilities([(put[a], put[b]) for a, b in where])
        rows, columns = np.array(where).T
        entails[rows, columns] = p.argmax(axis=1) == ENTAILMENT
        weight[rows, columns] = p[:, ENTAILMENT] + p[:, NEUTRAL] / 2
    return Meaning(entails & entails.T, weight + weight.T)


BATCH = 32
# In the order that `EntailmentModel.probabilities` promises.
CLASSES = ("entail", "neutral", "contradict")


class TransformersEntailment:
    """Any sequence classifier of three NLI classes, in process: a folder, or a name on the model hub.

    Its labels must say which class is which. Raises ValueError when they do not, or it cannot be loaded.
    """

    def __init__(self, name_or_folder: str | Path, *, device: str | None = None) -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        self.name = str(name_or_folder).rstrip("/").rsplit("/", 1)[-1]
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(name_or_folder)
            self._model: Any = AutoModelForSequenceClassification.from_pretrained(name_or_folder)
        except OSError as error:
            raise ValueError(f"the NLI model {self.name!r} cannot be loaded") from error
        # Models disagree on the order of the classes, and only their labels tell it.
        self._order = class_order(self._model.config.id2label)
        self._model.eval()
        if device:
            self._model.to(device)

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Return (n, 3) for n pairs (premise, hypothesis): entailment, neutral, contradiction; rows sum 1."""
        rows = [self._batch(pairs[start : start + BATCH]) for start in range(0, len(pairs), BATCH)]
        return np.concatenate(rows) if rows else np.empty((0, 3))

    def _batch(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        import torch

        premises, hypotheses = zip(*pairs, strict=True)
        encoded = self._tokenizer(
            list(premises), list(hypotheses), padding=True, truncation=True, return_tensors="pt"
        ).to(self._model.device)
        with torch.inference_mode():
            logits = self._model(**encoded).logits.double()  # so that rows sum to 1
        rows: NDArray[np.float64] = torch.softmax(logits, dim=-1).cpu().numpy()
        return rows[:, self._order]


def class_order(labels: Mapping[int, str]) -> list[int]:
    """Return the places of entailment, neutral and contradiction among a model's labels.

    >>> class_order({0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"})
    [2, 1, 0]
    """
    places = [
        [place for place, label in labels.items() if label.lower().startswith(name)] for name in CLASSES
    ]
    if len(labels) != len(CLASSES) or any(len(one) != 1 for one in places):
        raise ValueError(
            f"the labels of an NLI model must name {', '.join(CLASSES)}: {sorted(labels.values())}"
        )
    return [one[0] for one in places]


AUROC_OF_ONE_CLASS = "All answers of the test file are {}: there is nothing to tell apart."


def one_class(context: EvaluationContext) -> str:
    """Return why nothing can be told apart, or nothing."""
    right = context.test.labels.right
    kind = "right" if right.all() else "wrong"
    return "" if right.any() and not right.all() else AUROC_OF_ONE_CLASS.format(kind)


def scores(context: EvaluationContext) -> Iterator[tuple[str, str, Floats]]:
    """Yield (map, score, values), higher = more certain."""
    for name, one in context.served.items():
        yield name, "lambda_max", one.lambda_max
        yield name, "entropy", -one.entropy


def auroc_row(values: Floats, context: EvaluationContext) -> TableRow:
    """Return AUROC with its interval and the rejection area of one score (n,), higher = more certain."""
    ranking = context.auroc(values)
    return {
        "auroc": finite(ranking.value),
        "low": finite(ranking.low),
        "high": finite(ranking.high),
        "standard_error": finite(ranking.standard_error),
        "rejection_area": finite(accuracy_rejection(values, context.test.labels.right).area),
    }


BASELINES_NAME, BASELINES_TITLE = "baselines", "Baselines on the same answers"
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
    lines = [by_line.get(one.row.line, Recorded()) for one in rows]
    totals = _first([one.logprob for one in lines], m)
    if totals is None:
        return None
    tokens = _first([one.tokens for one in lines], m)
    if tokens is not None:
        return Likelihoods([t / n for t, n in zip(totals, tokens, strict=True)], totals, "token")
    pairs = zip(totals, rows, strict=True)
    return Likelihoods([per_word(t, [d.text for d in one.draws]) for t, one in pairs], totals, "word")


def _first(values: Iterable[Sequence[float]], m: int) -> list[Floats] | None:
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


def baselines(context: EvaluationContext, meanings: Meanings, likelihoods: Likelihoods | None) -> Experiment:
    """Return AUROC with interval and rejection area of every score; entropies are negated."""
    if reason := one_class(context):
        return not_run(BASELINES_NAME, BASELINES_TITLE, reason)
    points: list[TableRow] = [
        {"score": name, "note": note, **auroc_row(values, context)}
        for name, note, values in _all(context, meanings, likelihoods)
    ]
    headline: TableRow = {str(p["score"]): p["auroc"] for p in points}
    headline["meanings"] = meanings.source
    headline["log_probabilities"] = f"per {likelihoods.unit}" if likelihoods else NO_LOGPROBS
    return ran(BASELINES_NAME, BASELINES_TITLE, headline, points)


def _all(
    context: EvaluationContext, meanings: Meanings, likelihoods: Likelihoods | None
) -> Iterator[tuple[str, str, Floats]]:
    for name, kind, values in scores(context):
        yield f"{kind} ({name})", "spectral", values
    yield from _by_meaning(context.test, meanings)
    yield from _by_words(context.test)
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


SAMPLING_NAME, SAMPLING_TITLE = "sampling_temperature", "Sampling-temperature baseline"


@dataclass(frozen=True, slots=True)
class ChosenTemperature:
    """The temperature chosen on dev, and what was seen at each."""

    sampling_temperature: float
    points: list[TableRow]


def not_drawn(reason: str) -> Experiment:
    """Return that the baseline was not run, and why."""
    return not_run(SAMPLING_NAME, SAMPLING_TITLE, reason)


def choose_sampling(dev: Mapping[float, Split]) -> ChosenTemperature:
    """Return the sampling temperature of least ECE; dev: the same prompts, answered at each."""
    points = [_point(t, split) for t, split in sorted(dev.items())]
    # No ECE is above 1: 2 puts those that are unknown last.
    best = min(points, key=lambda p: p["class_share_ece"] if isinstance(p["class_share_ece"], float) else 2.0)
    return ChosenTemperature(float(best["sampling_temperature"] or 0.0), points)


def _point(temperature: float, split: Split) -> TableRow:
    shares = np.array(
        [
            class_shares(semantic_classes(m.equivalent), c).max()
            for m, c in zip(by_embedding(split).prompts, split.counts, strict=True)
        ]
    )
    diagram = reliability_diagram(np.clip(shares, 0.0, 1.0), split.labels.right)
    return {
        "sampling_temperature": float(temperature),
        "class_share_ece": finite(diagram.ece),
        "mean_class_share": float(shares.mean()),
        "accuracy": float(split.labels.right.mean()),
    }


def judge_sampling(
    choice: ChosenTemperature, test: Split, seed: int = 0, worlds: int = DEFAULT.nulls
) -> Experiment:
    """Return the eigenvalue ECE on test, answered at the chosen temperature, with the bands of both nulls."""
    raw = served([Identity()] * len(test), test.spectra, risks(Identity(), test.dev))
    paper = algorithm1_diagnostics(raw, test, [STANDARD], rng(seed, Stream.ALGORITHM1), worlds=worlds)[
        STANDARD
    ]
    drawn, rescaled = paper.nulls.drawn.band, paper.nulls.rescaled.band
    headline: TableRow = {
        "sampling_temperature": choice.sampling_temperature,
        "at_bound": _at_bound(choice),
        "test_eigenvalue_ece": finite(paper.diagram.ece),
        "band_low": finite(drawn.ece_low),
        "band_high": finite(drawn.ece_high),
        "rescaled_low": finite(rescaled.ece_low),
        "rescaled_high": finite(rescaled.ece_high),
        "test_projection_ece": projection_reliability(raw.lambda_max, test.c1).ece,
        "test_accuracy": float(test.labels.right.mean()),
    }
    return ran(SAMPLING_NAME, SAMPLING_TITLE, headline, choice.points)


def _at_bound(choice: ChosenTemperature) -> str:
    tried = [point["sampling_temperature"] for point in choice.points]
    names = {tried[0]: "the lowest tried is the best", tried[-1]: "the highest tried is the best"}
    return names.get(choice.sampling_temperature, "")
