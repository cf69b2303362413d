"""Which answers mean the same: by an NLI model where one is given, else by the embedder, and named so."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from service.calibration.files import Recorded
from service.calibration.fitting import Stream, rng, why_no_evidence
from service.jobs.model import FEW_ROWS
from service.report.bench import GRID, STANDARD, Bench, Split, describe, read_algorithm1, serve
from service.report.figures import (
    NO_CLUSTERS,
    algorithm1_diagram,
    auroc_experiment,
    auroc_row,
    cominimised,
    comparison,
    constant,
    convergence,
    correctness,
    depolarized,
    embedders,
    naive,
    one_class,
    projection,
    rejection,
    scores,
    temperature,
    verdict,
)
from service.report.figures import (
    answers as num_answers,
)
from service.report.model import (
    Experiment,
    PlainWarning,
    Provenance,
    Results,
    TableRow,
    finite,
    not_run,
    ran,
    unless_empty,
)
from service.report.report import few_of_a_kind, files_differ
from service.spectral.algorithm1 import Clustering
from service.spectral.dev_set import overlaps
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
    found = []
    for answers in split.answers:
        cosines = overlaps(answers).cosines
        found.append(Meaning(cosines >= least, 2.0 * np.clip(cosines, 0.0, 1.0)))
    return Meanings(BY_EMBEDDING, found)


def by_entailment(
    split: Split, model: EntailmentModel, progress: Callable[[], None] | None = None
) -> Meanings:
    """Return equivalence by entailment in both directions, as likeliest class.

    Weights are those of kernel language entropy: in each direction 1 for entailment, 1/2 for neutral, 0 for
    contradiction (expected, under the model's probabilities), added up. Answers are put after their prompt.
    """
    found = []
    for row, texts in zip(split.material.full, split.texts, strict=True):
        prompt = split.material.rows[int(row)].row.prompt or ""
        found.append(_judged(prompt, texts, model))
        if progress is not None:
            progress()
    return Meanings(f"entailment both ways by {model.name}", found)


def _judged(prompt: str, texts: Sequence[str], model: EntailmentModel) -> Meaning:
    size = len(texts)
    # An answer means the same as itself; the model is asked about pairs only.
    entails, weight = np.eye(size, dtype=np.bool_), np.eye(size)
    where = [(a, b) for a in range(size) for b in range(size) if a != b]
    if where:
        said = [f"{prompt} {text}".strip() for text in texts]
        p = model.probabilities([(said[a], said[b]) for a, b in where])
        rows, columns = np.array(where).T
        entails[rows, columns] = p.argmax(axis=1) == ENTAILMENT
        weight[rows, columns] = p[:, ENTAILMENT] + p[:, NEUTRAL] / 2
    return Meaning(entails & entails.T, weight + weight.T)


# How far to believe Algorithm 1: how it depends on its settings, and how alike what it averages is.

SENSITIVITY, SENSITIVITY_TITLE = "sensitivity", "Sensitivity of Algorithm 1 to bins B and clusters C"
SIMILARITY, SIMILARITY_TITLE = "similarity", "Similarity of density matrices within bins and within clusters"


def sensitivity(bench: Bench) -> Experiment:
    """Return the eigenvalue ECE and the bands of both nulls for every map and setting."""
    points: list[TableRow] = []
    for name in bench.served:
        for bins, clusters in GRID:
            one = bench.algorithm1(name, (bins, clusters))
            drawn, rescaled = one.nulls.drawn.band, one.nulls.rescaled.band
            points.append(
                {
                    "map": name,
                    "bins": bins,
                    "clusters": clusters,
                    "ece": finite(one.diagram.ece),
                    "band_mean": finite(drawn.ece_mean),
                    "band_low": finite(drawn.ece_low),
                    "band_high": finite(drawn.ece_high),
                    "rescaled_low": finite(rescaled.ece_low),
                    "rescaled_high": finite(rescaled.ece_high),
                }
            )
    return unless_empty(ran(SENSITIVITY, SENSITIVITY_TITLE, _ranges(points), points), NO_CLUSTERS, "ece")


def _ranges(points: list[TableRow]) -> TableRow:
    headline: TableRow = {}
    for name in dict.fromkeys(str(p["map"]) for p in points):
        found = [p["ece"] for p in points if p["map"] == name]
        eces = [ece for ece in found if isinstance(ece, float)]
        headline[f"{name}_least"] = min(eces, default=None)
        headline[f"{name}_most"] = max(eces, default=None)
    return headline


def similarity(bench: Bench) -> Experiment:
    """Return mean Frobenius cosines of pairs, bin by bin, for B = 8 and C = 5."""
    points: list[TableRow] = []
    headline: TableRow = {"all_pairs": _all_pairs(bench)}
    for name in bench.served:
        clusters = bench.algorithm1(name).clusters
        points += _rows(name, clusters)
        headline[f"{name}_within_bin"] = _mean(clusters.bin_similarity)
        headline[f"{name}_within_cluster"] = _mean(clusters.cluster_similarity)
    return unless_empty(ran(SIMILARITY, SIMILARITY_TITLE, headline, points), NO_CLUSTERS, "within_cluster")


def _rows(name: str, clusters: Clustering) -> list[TableRow]:
    columns = zip(clusters.mean_predicted, clusters.bin_similarity, clusters.cluster_similarity, strict=True)
    return [
        {"map": name, "predicted": float(x), "within_bin": finite(b), "within_cluster": finite(c)}
        for x, b, c in columns
    ]


def _mean(values: np.ndarray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else None


def _all_pairs(bench: Bench) -> float | None:
    cosines = bench.cosines
    if cosines is None or len(cosines) < 2:
        return None
    size = len(cosines)
    # Without the diagonal: each matrix is equal to itself.
    return float((cosines.sum() - np.trace(cosines)) / (size * (size - 1)))


# Other people's scores on the same answers, beside ours: by meaning, by words, by log-probabilities.

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
        return not_run(BASELINES_NAME, BASELINES_TITLE, reason)
    points: list[TableRow] = [
        {"score": name, "note": note, **auroc_row(values, bench)}
        for name, note, values in _all(bench, meanings, likelihoods)
    ]
    headline: TableRow = {str(p["score"]): p["auroc"] for p in points}
    headline["meanings"] = meanings.source
    headline["log_probabilities"] = f"per {likelihoods.unit}" if likelihoods else NO_LOGPROBS
    return ran(BASELINES_NAME, BASELINES_TITLE, headline, points)


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


# The evidence map as fitted on dev, and where on test it gains: risk by missing mass.

EVIDENCE_MAP_NAME, EVIDENCE_MAP_TITLE = "evidence_map", "Evidence map: risk by missing mass"
BINS = 8  # of equal mass, as the reliability diagrams have


def evidence_map(bench: Bench) -> Experiment:
    """Return T, a and b with their intervals, and the test risk with and without evidence by missing mass.

    Not run, with the reason, where a prompt of either file lacks log-probabilities.
    """
    found, missing = bench.evidence, bench.test.missing_mass
    if found is None or missing is None:
        return not_run(EVIDENCE_MAP_NAME, EVIDENCE_MAP_TITLE, _reason(bench))
    with_it, without = bench.served["evidence"].risks, bench.served["depolarized"].risks
    g = found.fit.map.depolarizations(missing)
    points: list[TableRow] = [
        {
            "missing_mass": float(missing[rows].mean()),
            "count": int(rows.size),
            "depolarization": float(g[rows].mean()),
            "test_risk_evidence": float(with_it[rows].mean()),
            "test_risk_depolarized": float(without[rows].mean()),
        }
        # Stable: prompts of one missing mass (it is clipped) keep their order on every machine.
        for rows in np.array_split(np.argsort(missing, kind="stable"), min(BINS, missing.size))
    ]
    return ran(EVIDENCE_MAP_NAME, EVIDENCE_MAP_TITLE, _headline(bench), points)


def _headline(bench: Bench) -> TableRow:
    found = bench.evidence
    assert found is not None
    map_, spread = found.fit.map, found.bootstrap
    return {
        "temperature": map_.temperature,
        "temperature_low": spread.temperature.low,
        "temperature_high": spread.temperature.high,
        "intercept": map_.intercept,
        "intercept_low": spread.intercept.low,
        "intercept_high": spread.intercept.high,
        "slope": map_.slope,
        "slope_low": spread.slope.low,
        "slope_high": spread.slope.high,
        "dev_risk": found.fit.risk,
        "cv_risk": float(found.risks["evidence"].mean()),
        "cv_risk_depolarized": float(bench.held_out.risks["depolarized"].mean()),
        "test_risk": float(bench.served["evidence"].risks.mean()),
        "at_bound": ", ".join(found.fit.at_bound),
    }


def _reason(bench: Bench) -> str:
    told = (
        f"Of the {name} file, {why}"
        for name, split in (("dev", bench.dev), ("test", bench.test))
        if (why := why_no_evidence(split.material))
    )
    return " ".join(told)


# The sampling-temperature baseline: draw at another temperature instead of calibrating the spectrum.
#
# The temperature is chosen on dev, by the ECE of the largest semantic class's share against correctness, and
# judged on test by the eigenvalue ECE of the raw spectra of answers drawn at it.

SAMPLING_NAME, SAMPLING_TITLE = "sampling_temperature", "Sampling-temperature baseline"


@dataclass(frozen=True, slots=True)
class ChosenTemperature:
    """The temperature chosen on dev, and what was seen at each."""

    sampling_temperature: float
    points: list[TableRow]


def not_drawn(reason: str) -> Experiment:
    """Return that the baseline was not run, and why."""
    return not_run(SAMPLING_NAME, SAMPLING_TITLE, reason)


def choose(dev: Mapping[float, Split]) -> ChosenTemperature:
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


def judge(choice: ChosenTemperature, test: Split, seed: int = 0, worlds: int = DEFAULT.nulls) -> Experiment:
    """Return the eigenvalue ECE on test, answered at the chosen temperature, with the bands of both nulls."""
    served = serve("raw", Identity(), test)
    paper = read_algorithm1(served, test, [STANDARD], rng(seed, Stream.ALGORITHM1), worlds=worlds)[STANDARD]
    drawn, rescaled = paper.nulls.drawn.band, paper.nulls.rescaled.band
    headline: TableRow = {
        "sampling_temperature": choice.sampling_temperature,
        "at_bound": _at_bound(choice),
        "test_eigenvalue_ece": finite(paper.diagram.ece),
        "band_low": finite(drawn.ece_low),
        "band_high": finite(drawn.ece_high),
        "rescaled_low": finite(rescaled.ece_low),
        "rescaled_high": finite(rescaled.ece_high),
        "test_projection_ece": projection_reliability(served.lambda_max, test.c1).ece,
        "test_accuracy": float(test.labels.right.mean()),
    }
    return ran(SAMPLING_NAME, SAMPLING_TITLE, headline, choice.points)


def _at_bound(choice: ChosenTemperature) -> str:
    tried = [point["sampling_temperature"] for point in choice.points]
    names = {tried[0]: "the lowest tried is the best", tried[-1]: "the highest tried is the best"}
    return names.get(choice.sampling_temperature, "")


# An evaluation: every experiment in order, in the shape of its results, and what to know first.

FITTED_ON_DEV = "the model of P(correct), if there is one, rests"
Step = Callable[[], Experiment]
OnExperiment = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """benches: by embedder, the first is the one that all experiments use.

    meanings: None: by the first embedder. likelihoods: None: none recorded. sampling_temperature: that
    baseline as it came out, or why it did not run (it needs a model to draw from).
    """

    benches: Mapping[str, Bench]
    meanings: Meanings | None
    likelihoods: Likelihoods | None
    sampling_temperature: Experiment

    @property
    def first(self) -> Bench:
        """Return the bench of the first embedder."""
        return next(iter(self.benches.values()))


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What is said of a file: rows in it, and answers per prompt before they were cut to those used."""

    rows: int
    answers: int


def make_results(
    inputs: Inputs,
    files: tuple[FileFacts, FileFacts],
    provenance: Provenance,
    progress: OnExperiment | None = None,
) -> Results:
    """Run every experiment on dev and test `files`. Blocking: seconds to minutes."""
    bench, (dev, test) = inputs.first, files
    experiments = run_all(inputs, progress)
    found = cautions(bench)
    return {
        "version": 1,
        "num_samples": bench.test.material.num_samples,
        "seed": bench.seed,
        "embedders": list(inputs.benches),
        "meanings": inputs.meanings.source if inputs.meanings else BY_EMBEDDING,
        "dev": describe(bench.dev, dev.rows, dev.answers),
        "test": describe(bench.test, test.rows, test.answers),
        "experiments": experiments,
        "provenance": provenance,
        "warnings": [one["text"] for one in found] + _warnings(bench, experiments),
        "verdict": verdict(experiments),
        "cautions": found,
    }


def cautions(bench: Bench) -> list[PlainWarning]:
    """Return warnings of few right or wrong answers in a file, which they name, and of files not alike."""
    both = bench.dev, bench.test
    largest = [np.array([one.eigenvalues[0] for one in split.spectra]) for split in both]
    accuracy = bench.dev.labels.right, bench.test.labels.right
    return [
        *few_of_a_kind(accuracy[0], " of the dev file", FITTED_ON_DEV),
        *few_of_a_kind(accuracy[1], " of the test file"),
        *files_differ(accuracy, (largest[0], largest[1])),
    ]


def _warnings(bench: Bench, experiments: Sequence[Experiment]) -> list[str]:
    found = [
        f"Only {len(split)} {name} prompts: intervals are wide. Use at least {FEW_ROWS}."
        for name, split in (("dev", bench.dev), ("test", bench.test))
        if len(split) < FEW_ROWS
    ]
    at_bound = {e["name"]: e["headline"].get("at_bound") for e in experiments}
    found += [f"The fit of {name} sits on a bound: {bound}." for name, bound in at_bound.items() if bound]
    left_out = [e["title"] for e in experiments if not e["ran"]]
    return found + ([f"Not run: {', '.join(left_out)}. The reasons stand below."] if left_out else [])


def run_all(inputs: Inputs, progress: OnExperiment | None = None) -> list[Experiment]:
    """Return every experiment. `progress` is told (done, all, what comes). Blocking: seconds to minutes."""
    bench = inputs.first
    found: list[Experiment] = []
    steps = _steps(bench, inputs)
    for number, (what, step) in enumerate(steps):
        if progress is not None:
            progress(number, len(steps), what)
        found.append(step())
    if progress is not None:
        progress(len(steps), len(steps), "done")
    return found


def _steps(bench: Bench, inputs: Inputs) -> Sequence[tuple[str, Step]]:
    return [
        ("estimator convergence", lambda: convergence(bench)),
        ("constant predictor", lambda: constant(bench)),
        ("fit of the temperature", lambda: temperature(bench)),
        ("fit of the depolarised map", lambda: depolarized(bench)),
        ("evidence map", lambda: evidence_map(bench)),
        ("projection reliability", lambda: projection(bench)),
        # The first setting that is not the standard one brings all of them.
        ("naive diagram, and Algorithm 1 in all settings", lambda: naive(bench)),
        ("Algorithm 1", lambda: algorithm1_diagram(bench)),
        ("sensitivity of Algorithm 1", lambda: sensitivity(bench)),
        ("similarity within clusters", lambda: similarity(bench)),
        ("co-minimised measures", lambda: cominimised(bench)),
        ("correctness", lambda: correctness(bench)),
        ("AUROC", lambda: auroc_experiment(bench)),
        ("accuracy and rejection", lambda: rejection(bench)),
        ("baselines", lambda: baselines(bench, _meanings(bench, inputs), inputs.likelihoods)),
        ("differences between maps", lambda: comparison(bench)),
        ("what an answer more is worth", lambda: num_answers(bench)),
        ("embedders", lambda: embedders(inputs.benches)),
        ("sampling temperature", lambda: inputs.sampling_temperature),
    ]


def _meanings(bench: Bench, inputs: Inputs) -> Meanings:
    return inputs.meanings or by_embedding(bench.test)
