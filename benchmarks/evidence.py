"""What evidence is worth in the core, on recorded answers: the tables of docs/benchmarks.md.

    python -m benchmarks.evidence

Needs ../shared/data. First the maps by number of answers, fitted on rows 0-149 and tested on rows 150-399 of
the TriviaQA test file (method, section 6). Then P(correct) of each row's `answer` beside lambda_max of 20
answers, on both TriviaQA files; maps and models are cross-validated, the intervals are paired bootstraps over
questions. Answers without a recorded vector (one in twelve) are embedded by the all-mpnet-base-v2 in
data/weights; where that is missing, those rows are left out. Tokens are those of the answers, with the one
that ended each, counted with the model's tokenizer. Last P(correct) of the first answer drawn, taken for a
caller's own: by its own log-probability, and by further answers. Takes about a minute in one thread.
"""

import sys

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.recorded_evidence import DATA, DEV, TEST, WEIGHTS, Recorded
from service.calibration.calibration import answer_features
from service.claims.verdicts import correct
from service.spectral.correctness_model import (
    brier,
    fit_correctness,
    held_out_predictions,
    log_loss,
    log_losses,
    logit_probability,
    stratified_folds,
)
from service.spectral.dev_set import AnyMap, DevSet, risk, served_lambda_max
from service.spectral.fit import fit_depolarized, fit_evidence, fit_temperature
from service.spectral.reliability import auroc, projection_brier
from service.spectral.resampling import Difference, figure_difference, mean_difference
from service.spectral.spectrum import Identity, TemperatureMap

FURTHER = (1, 3, 5, 19)
FIT, HELD = np.arange(150), np.arange(150, 400)
DRAWN = ((1, True), (2, True), (3, True), (3, False), (5, True), (10, True), (20, True), (20, False))


def map_row(name: str, map_: AnyMap, dev: DevSet, right: np.ndarray, numbers: str) -> str:
    predicted, c1 = np.clip(served_lambda_max(map_, dev), 0, 1), np.clip(dev.alignment[:, 0], 0, 1)
    varies = predicted.std() > 1e-9
    correlation = f"{np.corrcoef(predicted, c1)[0, 1]:.3f}" if varies else "none"
    return (
        f"| {name} | {numbers} | {risk(map_, dev):.3f} | {projection_brier(predicted, c1):.4f} "
        f"| {correlation} | {auroc(predicted, right):.3f} |"
    )


def by_answers(data: Recorded) -> None:
    print("| m | map | T | a | b | risk | projection Brier | correlation | AUROC of lambda_max |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    for m in (1, 2, 3, 5, 10, 20):
        rows = data.evidence(m)
        fit, held = rows.take(FIT), rows.take(HELD)
        paper, flat, ours = fit_temperature(fit).map, fit_depolarized(fit).map, fit_evidence(fit).map
        g = flat.depolarization
        temperature = flat.temperature if m > 1 else 1.0
        lines: list[tuple[str, AnyMap, str]] = [
            ("raw", Identity(), "| |"),
            ("temperature", paper, f"{paper.temperature:.3f} | |" if m > 1 else "| |"),
            ("depolarized", flat, f"{temperature:.3f} | {np.log(g / (1 - g)):.3f} | 0"),
            (
                "evidence",
                ours,
                f"{ours.temperature:.3f} | {ours.intercept:.3f} | {ours.slope:.3f}",
            ),
        ]
        for name, map_, numbers in lines:
            if m == 1 and isinstance(map_, TemperatureMap):
                continue  # a spectrum that is a single 1 has no shape
            print(f"| {m} " + map_row(name, map_, held, data.right[HELD], numbers))


def tokens(data: Recorded, m: int) -> str:
    """Mean tokens of m answers to a question, the one that ended each included."""
    path = next(WEIGHTS.glob("SmolLM2*/tokenizer.json"), None)
    if path is None:
        return "?"
    from tokenizers import Tokenizer

    count = Tokenizer.from_file(str(path))
    texts = [f" {text}" for row in data.rows for text in row["samples"][:m]]
    return f"{sum(len(one.ids) + 1 for one in count.encode_batch(texts)) / len(data.rows):.1f}"


def interval(found: Difference) -> str:
    return f"{found.value:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


def auroc_difference(ours: np.ndarray, others: np.ndarray, right: np.ndarray) -> str:
    def figures(pick: np.ndarray) -> tuple[float, float]:
        return auroc(ours[pick], right[pick]), auroc(others[pick], right[pick])

    return interval(figure_difference(figures, right.size, np.random.default_rng(2), resamples=1000))


def loss_difference(ours: np.ndarray, others: np.ndarray, right: np.ndarray) -> str:
    gaps = log_losses(ours, right), log_losses(others, right)
    return interval(mean_difference(*gaps, np.random.default_rng(2)))


def by_verdicts(name: str, data: Recorded) -> None:
    """P(correct) by number of answers beside lambda_max of 20 (its log loss: a logistic regression on it)."""
    right, fold_rng = data.right[data.judged], np.random.default_rng(1)
    many = data.material(20).rows.eigenvalues[:, 0]
    fold = stratified_folds(right, 5, fold_rng)
    alone = held_out_predictions({"lambda_max": logit_probability(many)}, right, ("lambda_max",), fold)
    base = held_out_predictions({}, right, (), fold)
    print(f"\n{name}: {right.size} rows, {right.sum()} right. Base rate: {log_loss(base, right):.3f}")
    print("| answers | tokens | AUROC | over lambda_max of 20 | log loss | over lambda_max of 20 | Brier |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    print(
        f"| 20, lambda_max alone | {tokens(data, 20)} | {auroc(many, right):.3f} | | "
        f"{log_loss(alone, right):.3f} | | {brier(alone, right):.4f} |"
    )
    for m, evidence in DRAWN:
        columns = data.material(m).held_out_columns(evidence=evidence)
        fit = fit_correctness(columns, right, fold)
        ours = fit.held_out
        assert ours is not None
        name = f"{m} {'with evidence' if evidence else 'without'}{', not served' if fit.why_none else ''}"
        losses = f"{log_loss(ours, right):.3f} | {loss_difference(ours, alone, right)}"
        print(
            f"| {name} | {tokens(data, m)} | {auroc(ours, right):.3f} "
            f"| {auroc_difference(ours, many, right)} | {losses} | {brier(ours, right):.4f} |"
        )


def own_first(name: str) -> tuple[Recorded, np.ndarray]:
    """The recorded rows with the first answer drawn as the text to judge, by the others; log p of it."""
    data = Recorded(name, embed=False)
    assert data.answer_vectors, "of every answer, before the first is taken from them"
    totals = np.array([row["logprob"].pop(0) for row in data.rows])
    for row in data.rows:
        row["answer"] = row["samples"].pop(0)
    data.drawn = data.drawn[:, 1:]
    data.right = np.array([correct(row["answer"], [row["reference"]]) for row in data.rows])
    return data, totals


def by_itself() -> None:
    """P(correct) of an answer drawn as a caller's own is, by its own log-probability and by further draws."""
    files = [own_first(name) for name in (DEV, TEST)]
    right = np.concatenate([data.right for data, _ in files])
    texts = [row["answer"] for data, _ in files for row in data.rows]
    sets = {0: answer_features(np.concatenate([totals for _, totals in files]), texts)}
    for m in FURTHER:
        parts = [data.material(m).held_out_columns(evidence=True) for data, _ in files]
        sets[m] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    found = {}
    for m, columns in sets.items():
        fit = fit_correctness(columns, right, stratified_folds(right, 5, np.random.default_rng(1)))
        assert fit.held_out is not None
        found[m] = fit.held_out
    print(f"\nThe first answer of TriviaQA dev and test: {right.size} rows, {right.sum()} right.")
    print("| further answers | tokens | AUROC | none minus that | log loss | none minus that |")
    print("|---|---:|---:|---:|---:|---:|")
    for m, p in found.items():
        gaps = auroc_difference(found[0], p, right), loss_difference(found[0], p, right)
        ranked, lost = gaps if m else ("", "")
        told = f"| {m} | {_tokens(files, m)} | {auroc(p, right):.3f} | {ranked} | {log_loss(p, right):.3f} "
        print(f"{told}| {lost} |")


def _tokens(files: list[tuple[Recorded, np.ndarray]], m: int) -> str:
    """Mean tokens of the further answers, over both files."""
    rows = sum(len(data.rows) for data, _ in files)
    means = [float(tokens(data, m)) * len(data.rows) for data, _ in files] if m else [0.0]
    return f"{sum(means) / rows:.1f}"


def main() -> None:
    if not DATA.is_dir():
        sys.exit("The recorded answers are not beside this checkout: ../shared/data")
    test = Recorded(TEST, embed=True)
    by_answers(test)
    for name, data in (("TriviaQA test", test), ("TriviaQA dev", Recorded(DEV, embed=True))):
        by_verdicts(name, data)
    by_itself()


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
