"""What each experiment of an evaluation says in one sentence, and what it does and does not show."""

import math
from collections.abc import Callable

from service.evaluation.plots import figure
from service.report.drawing import column
from service.report.model import MAPS as MAP_NAMES
from service.report.model import Experiment
from service.report.page import SAYS, SAYS_NOT
from service.report.words import MAPS, number, p_words, typeset

# Name: (what it says, what it does not say).
READ = {
    "estimator_convergence": (
        "The mean raw λmax of random subsets of the answers, and by how much it differs between "
        "subsets of one prompt (bars: one standard deviation). Few answers read too high.",
        "Subsets of nearly all answers are alike by construction: the last bar is 0 and promises "
        "nothing about new answers.",
    ),
    "constant_predictor": (
        "A check of the machinery. One matrix, the mean of all references, is served for every "
        "prompt; no other constant is better on these references, so its risk must be lowest at T = "
        "1.",
        "Anything about the model: no answer of it takes part.",
    ),
    "risk_and_entropy": (
        "Risk of the paper's map for every T, on both files. The fit is where the risk on dev is lowest.",
        "That risk and entropy meet there is algebra for a temperature, not evidence of "
        "calibration: it shows that the search has converged. T depends on the null eigenvalue eps.",
    ),
    "depolarized_map": (
        "Risk of our map over the depolarisation g, at its fitted temperature, on both files.",
        "T and g trade off: a curve over one of them at the other's best value looks sharper than "
        "the data are.",
    ),
    "evidence_map": (
        "The mean test risk of prompts in groups of equal size by their missing mass u, what the model's own "
        "log-probabilities leave for answers that were not drawn: the evidence map, whose depolarisation is "
        "each prompt's own, sigmoid(a + b logit u), beside the depolarised map, which has one for all.",
        "Whether answers are right. Where b is 0, the log-probabilities told the fit nothing.",
    ),
    "projection_reliability": (
        "The mean share of the reference along the dominant direction, against λmax, by bins of "
        "λmax. A calibrated map lies on the diagonal, within the grey band but for chance. An ECE is "
        "above 0 by chance alone, so it goes with what calibrated scores read here; the band keeps the "
        "spread that references of like prompts have.",
        "Anything about the other eigenvalues. An ECE inside its band cannot be told from calibration "
        "with so many prompts; it is no proof of it.",
    ),
    "naive_diagram": (
        "Largest eigenvalue of the mean reference matrix of a whole bin, against λmax.",
        "A bin holds prompts about different things, so its mean matrix has a small largest "
        "eigenvalue whatever the calibration: the diagonal is not where a calibrated map lies. "
        "Compare with both bands: grey, references drawn from what is served; dashed, real ones, rescaled.",
    ),
    "algorithm1_diagram": (
        "The paper's diagram: the same within clusters of like density matrices, B = 8 bins, C = 5 "
        "clusters. Grey: where points lie if references are drawn from what is served (a). Dashed: if "
        "real references keep their directions and only how much of them lies where is as served (b). "
        "Distance from a is mostly that real references outside the answers' span are alike (they lie in "
        "the narrow cone of the embedder), which no map of eigenvalues can mend. Distance from b is what a "
        "map can be blamed for.",
        "Which map is the better one: a few references have a large largest eigenvalue by chance, so even "
        "perfect calibration reads far from 0, by more for one map than for another, and the ECE by "
        "itself says nothing. Nor anything of prompts alone in their cluster: they are left out.",
    ),
    "sensitivity": (
        "The eigenvalue ECE for other numbers of bins and clusters (markers), and what it reads in the same "
        "setting if references are drawn from what is served (a, light bars) or real ones are rescaled "
        "(b, dark bars).",
        "Figures of different settings cannot be compared with one another: the bias moves with B and C.",
    ),
    "similarity": (
        "How alike the density matrices are that Algorithm 1 treats as one: mean cosine of pairs.",
        "Clusters are chosen by these very cosines, so they are above the bins by construction.",
    ),
    "co_minimised": (
        "Whether calibration error, risk and eigenvalue ECE are lowest at one temperature, as the paper "
        "claims. Each curve is scaled from its least to its most.",
        "How deep the valleys are: scaling hides it. The eigenvalue ECE is biased and need not agree.",
    ),
    "correctness_diagram": (
        "The share of right answers against λmax. Grey: where it would lie if λmax were the chance of "
        "being right.",
        "λmax is calibrated for the share of the reference along the dominant direction, not for "
        "being right by a rule such as ROUGE-L above 0.3: a calibrated map need not lie on the "
        "diagonal here.",
    ),
    "auroc": (
        "How well each score tells right answers from wrong ones, with bootstrap intervals over "
        "prompts. The standard error is the standard deviation of the bootstrap.",
        "Whether a score is calibrated: AUROC sees order only. Raw, temperature and depolarized "
        "order prompts nearly alike; evidence may change the order, for better or worse.",
    ),
    "accuracy_rejection": (
        "Accuracy of the answers kept when the least certain are rejected; the grey line is all answers.",
        "The right end rests on few answers and is mostly chance.",
    ),
    "baselines": (
        "AUROC of other scores on the same answers and labels; ours in colour.",
        "A score with a higher AUROC here is not thereby a probability: most of these have no scale at all.",
    ),
    "comparison": (
        "Differences between maps on the same prompts with 95 % intervals. One that leaves out 0 is "
        "real for prompts like these. Negative is better for all but AUROC.",
        "Anything about other data or models. Of twenty such intervals, one leaves out 0 by chance.",
    ),
    "answers": (SAYS, SAYS_NOT),
    "embedders": (
        "The same answers seen by another embedding model, with maps fitted for it. Bars: what calibrated "
        "scores read (for the eigenvalue ECE a, light, and b, dark); lines: 95 % intervals.",
        "Figures of two embedders are about two different density matrices: only the pattern can be "
        "compared.",
    ),
    "sampling_temperature": (
        "What drawing at another temperature does instead of calibrating: chosen on dev by the ECE "
        "of the largest semantic class's share, judged on test.",
        "Answers at another temperature are other answers: their accuracy changes too.",
    ),
}


def _of(experiment: Experiment, key: str, digits: int = 3) -> str:
    return number(figure(experiment, key), digits)


def _between(experiment: Experiment, low: str, high: str, digits: int = 3) -> str:
    return f"95 % {_of(experiment, low, digits)} to {_of(experiment, high, digits)}"


def _maps(experiment: Experiment, key: str) -> list[str]:
    """Return the maps that the headline tells of; evidence is not always among them."""
    return [name for name in MAP_NAMES if key.format(name) in experiment["headline"]]


def _by_map(experiment: Experiment, key: str, what: str) -> str:
    told = (f"{MAPS[name]} {_of(experiment, key.format(name))}" for name in _maps(experiment, key))
    return f"{what}: {', '.join(told)}."


def _eces(experiment: Experiment) -> str:
    told = (
        f"{MAPS[n]} {_of(experiment, f'{n}_ece')} (band {_ends(experiment, f'{n}_band')})"
        for n in _maps(experiment, "{}_ece")
    )
    return f"ECE: {', '.join(told)}."


def _projection(experiment: Experiment) -> str:
    names = _maps(experiment, "{}_ece")
    if all(figure(experiment, f"{n}_p_value") is None for n in names):
        return f"{_eces(experiment)[:-1]}; the bands are of an earlier release, about twice too wide."
    told = (
        f"{MAPS[n]} {_of(experiment, f'{n}_ece')} (if calibrated {_of(experiment, f'{n}_band_low')} to "
        f"{_of(experiment, f'{n}_band_high')}, {p_words(figure(experiment, f'{n}_p_value'))})"
        for n in names
    )
    return f"ECE: {', '.join(told)}."


def _both_nulls(experiment: Experiment) -> str:
    return f"ECE: {', '.join(_with_nulls(experiment, name) for name in _maps(experiment, '{}_ece'))}."


def _with_nulls(experiment: Experiment, name: str) -> str:
    return f"{MAPS[name]} {_of(experiment, f'{name}_ece')} ({_both_bands(experiment, f'{name}_')})"


def _both_bands(experiment: Experiment, prefix: str) -> str:
    """Return the bands of both nulls of Algorithm 1; results of earlier releases lack the second."""
    drawn = f"references drawn {_ends(experiment, f'{prefix}band')}"
    if figure(experiment, f"{prefix}rescaled_low") is None:
        return drawn
    return f"{drawn}, rescaled {_ends(experiment, f'{prefix}rescaled')}"


def _sensitivity(experiment: Experiment) -> str:
    told = f"{_by_map(experiment, '{}_least', 'Least ECE')} {_by_map(experiment, '{}_most', 'Most ECE')}"
    if not any("rescaled_high" in row for row in experiment["points"]):
        return told
    shown = dict.fromkeys(str(row["map"]) for row in experiment["points"])
    above = ", ".join(f"{MAPS[name]} {_above(experiment, name)}" for name in shown)
    return f"{told} Above the band of references rescaled: {above} settings."


def _above(experiment: Experiment, name: str) -> str:
    """Return "3 of 9": settings in which a map's ECE is above its second band, of those where it is known."""
    mine = [row for row in experiment["points"] if row["map"] == name]
    gaps = [ece - high for ece, high in zip(column(mine, "ece"), column(mine, "rescaled_high"), strict=True)]
    known = [gap for gap in gaps if not math.isnan(gap)]
    return f"{sum(gap > 0 for gap in known)} of {len(known)}"


def _ends(experiment: Experiment, key: str) -> str:
    return f"{_of(experiment, f'{key}_low')} to {_of(experiment, f'{key}_high')}"


def _convergence(e: Experiment) -> str:
    ends = f"{_of(e, 'from_num_samples', 0)} to {_of(e, 'to_num_samples', 0)}"
    return (
        f"From {ends} answers the mean λmax goes from {_of(e, 'mean_at_first')} to {_of(e, 'mean_at_last')}."
    )


def _co_minimised(e: Experiment) -> str:
    names = {"cal_s": "Cal_S", "risk": "risk", "eigenvalue_ece": "eigenvalue ECE"}
    told = ", ".join(f"{name} {_of(e, f'{key}_lowest_at', 2)}" for key, name in names.items())
    claimed = f"{e['headline']['claim']} " if e["headline"].get("claim") else ""
    return f"{claimed}Lowest at T: {told}. {_by_map(e, '{}_cal_s', 'Cal_S in nats')}"


def _depolarized(e: Experiment) -> str:
    t = f"T = {_of(e, 'temperature', 2)} ({_between(e, 'temperature_low', 'temperature_high', 2)})"
    g = f"g = {_of(e, 'depolarization', 2)} ({_between(e, 'depolarization_low', 'depolarization_high', 2)})"
    return f"{t}, {g}; test risk {_of(e, 'test_risk')} nats."


def _evidence_map(e: Experiment) -> str:
    names = {"T": "temperature", "a": "intercept", "b": "slope"}
    told = (
        f"{name} = {_of(e, key, 2)} ({_between(e, f'{key}_low', f'{key}_high', 2)})"
        for name, key in names.items()
    )
    return (
        f"{', '.join(told)}; cross-validated risk {_of(e, 'cv_risk')} nats, depolarized "
        f"{_of(e, 'cv_risk_depolarized')}; test risk {_of(e, 'test_risk')}."
    )


def _baselines(e: Experiment) -> str:
    known = {name: value for name, value in e["headline"].items() if isinstance(value, float)}
    best = max(known, key=lambda name: known[name])
    ours = max((n for n in known if "(" in n), key=lambda name: known[name])
    first, second = (f"{_score(name)} {number(known[name])}" for name in (best, ours))
    return f"Best AUROC: {first}; best of ours: {second}."


def _score(name: str) -> str:
    return typeset(name)


def _comparison(e: Experiment) -> str:
    real = [p for p in e["points"] if p["real"] and p["figure"] == "cv_risk"]
    told = ", ".join(
        f"{MAPS[str(p['second'])]} − {MAPS[str(p['first'])]} {number(float(p['difference'] or 0.0))}"
        for p in real
    )
    return f"Cross-validated risk differences whose interval leaves out 0: {told or 'none'}."


_SENTENCES: dict[str, Callable[[Experiment], str]] = {
    "estimator_convergence": _convergence,
    "constant_predictor": lambda e: (
        f"Risk is lowest at T = {_of(e, 'best_temperature', 4)} ({_between(e, 'low', 'high')})."
    ),
    "risk_and_entropy": lambda e: (
        f"T = {_of(e, 'temperature', 2)} ({_between(e, 'low', 'high', 2)}); "
        f"test risk {_of(e, 'test_risk')} nats."
    ),
    "depolarized_map": _depolarized,
    "evidence_map": _evidence_map,
    "projection_reliability": _projection,
    "naive_diagram": _both_nulls,
    "algorithm1_diagram": _both_nulls,
    "sensitivity": _sensitivity,
    "similarity": lambda e: (
        f"All pairs {_of(e, 'all_pairs')}. {_by_map(e, '{}_within_bin', 'Within bins')} "
        f"{_by_map(e, '{}_within_cluster', 'Within clusters')}"
    ),
    "co_minimised": _co_minimised,
    "correctness_diagram": _eces,
    "auroc": lambda e: f"{_by_map(e, '{}_lambda_max', 'λmax')} {_by_map(e, '{}_entropy', 'Entropy')}",
    "accuracy_rejection": lambda e: (
        f"{_by_map(e, '{}_lambda_max_area', 'Area by λmax')} Accuracy of all: {_of(e, 'accuracy')}."
    ),
    "baselines": _baselines,
    "comparison": _comparison,
    "answers": lambda e: typeset(str(e["headline"]["recommendation"])),
    "embedders": lambda e: f"{'; '.join(f'{k} {_of(e, k)}' for k in e['headline'])}.",
    "sampling_temperature": lambda e: (
        f"Chosen: {_of(e, 'sampling_temperature', 2)}; test eigenvalue ECE {_of(e, 'test_eigenvalue_ece')} "
        f"({_both_bands(e, '')})."
    ),
}


def sentence(experiment: Experiment) -> str:
    """Return the experiment's row in words; why not, where it did not run."""
    if not experiment["ran"]:
        return f"Not run: {experiment['reason']}"
    return _SENTENCES[experiment["name"]](experiment)
