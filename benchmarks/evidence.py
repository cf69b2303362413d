"""The value of evidence maps on recorded answers: the tables of benchmarks/tables.md.

    python -m benchmarks.evidence

Needs ../shared/data, all-mpnet-base-v2 in data/weights and, to count tokens, the tokenizers of SmolLM2 and,
for the sets of `benchmarks.record`, of Qwen2.5 there. The first tables have the maps by number of
answers, fitted on rows 0-149 and tested on rows 150-399 of the TriviaQA test file of SmolLM2 (method,
section 6). The next compare P(correct) of each row's `answer` with the raw lambda_max of all its answers, on
each set; maps and models are cross-validated, and intervals are paired bootstraps over questions. The kernel
is `facts` or, if noted, the cosine. Tokens are those of the answers, including end tokens. The last tables
have P(correct) of an answer by its own log-probability, and by further answers. Takes a few minutes in one
thread.
"""

import sys
from collections.abc import Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.recorded_evidence import (
    DATA,
    DEV,
    OTHER,
    TEST,
    Recorded,
    recorded,
    titles,
    tokenizer_of,
)
from lab.resampling import figure_difference
from service.embedding.port import FACTS, PAPER
from service.spectral.correctness_model import (
    brier,
    held_out_predictions,
    log_loss,
    log_losses,
    logit_probability,
    stratified_folds,
)
from service.spectral.dev_set import AnyMap, DevSpectra, risk, served_lambda_max
from service.spectral.fit import fit_depolarized, fit_evidence, fit_temperature
from service.spectral.reliability import auroc, projection_brier
from service.spectral.resampling import Difference, mean_difference
from service.spectral.spectrum import TemperatureMap

FIT, HELD = np.arange(150), np.arange(150, 400)
SIZES = (1, 2, 3, 5, 10, 20)
WITHOUT = (3, 10, 20)  # numbers of answers for the table rows without evidence


def map_row(name: str, map_: AnyMap, dev: DevSpectra, right: np.ndarray, numbers: str) -> str:
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
    for m in SIZES:
        rows = data.material(m).rows
        fit, held = rows.take(FIT), rows.take(HELD)
        paper, flat, ours = fit_temperature(fit).map, fit_depolarized(fit).map, fit_evidence(fit).map
        g = flat.depolarization
        temperature = flat.temperature if m > 1 else 1.0
        lines: list[tuple[str, AnyMap, str]] = [
            ("raw", TemperatureMap(1.0), "| |"),
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
                continue  # with one answer the spectrum is always (1)
            print(f"| {m} " + map_row(name, map_, held, data.right[HELD], numbers), flush=True)


def tokens(sets: Sequence[Recorded], m: int) -> str:
    """Return the mean number of tokens of the first m answers to a question, including end tokens."""
    rows = [row for recorded_ in sets for row in recorded_.rows]
    if all("ntok" in row for row in rows):
        return f"{np.mean([sum(row['ntok'][1 : m + 1]) for row in rows]):.1f}"
    count = tokenizer_of(sets[0].names[0])
    if count is None:
        return "?"
    texts = [f" {text}" for row in rows for text in row["samples"][:m]]
    return f"{sum(len(encoding.ids) + 1 for encoding in count.encode_batch(texts)) / len(rows):.1f}"


def interval(difference: Difference) -> str:
    return f"{difference.value:+.3f} ({difference.low:+.3f} to {difference.high:+.3f})"


def auroc_difference(ours: np.ndarray, others: np.ndarray, right: np.ndarray) -> str:
    def figures(pick: np.ndarray) -> tuple[float, float]:
        return auroc(ours[pick], right[pick]), auroc(others[pick], right[pick])

    return interval(figure_difference(figures, right.size, np.random.default_rng(2), resamples=1000))


def loss_difference(ours: np.ndarray, others: np.ndarray, right: np.ndarray) -> str:
    gaps = log_losses(ours, right), log_losses(others, right)
    return interval(mean_difference(*gaps, np.random.default_rng(2)))


def by_verdicts(name: str, title: str) -> None:
    """Print P(correct) by number of answers, and lambda_max of all answers with a regression on it."""
    data, cosine = recorded(name), recorded(name, PAPER)
    most, right = data.num_samples, data.right
    many = data.material(most).rows.eigenvalues[:, 0]
    fold = stratified_folds(right, 5, np.random.default_rng(1))
    alone = held_out_predictions(
        {"logit_probability": logit_probability(many)}, right, ("logit_probability",), fold
    )
    base = held_out_predictions({}, right, (), fold)
    print(f"\n{title}: {right.size} rows, {right.sum()} right. Base rate: {log_loss(base, right):.3f}")
    gap = f"over lambda_max of {most}"
    print(f"| answers | tokens | AUROC | {gap} | log loss | {gap} | Brier | AUROC by the cosine | log loss |")
    print("|---|---:|---:|---|---:|---|---:|---:|---:|")
    by_cosine = auroc(cosine.material(most).rows.eigenvalues[:, 0], right)
    print(
        f"| {most}, lambda_max alone | {tokens([data], most)} | {auroc(many, right):.3f} | | "
        f"{log_loss(alone, right):.3f} | | {brier(alone, right):.4f} | {by_cosine:.3f} | |"
    )
    sizes = [m for m in SIZES if m <= most]
    for m, evidence in [*((m, True) for m in sizes), *((m, False) for m in WITHOUT if m in sizes)]:
        ours, served = data.material(m).held_out(evidence=evidence)
        theirs, _ = cosine.material(m).held_out(evidence=evidence)
        label = f"{m} {'with evidence' if evidence else 'without'}{'' if served else ', not served'}"
        losses = f"{log_loss(ours, right):.3f} | {loss_difference(ours, alone, right)}"
        print(
            f"| {label} | {tokens([data], m)} | {auroc(ours, right):.3f} "
            f"| {auroc_difference(ours, many, right)} | {losses} | {brier(ours, right):.4f} "
            f"| {auroc(theirs, right):.3f} | {log_loss(theirs, right):.3f} |",
            flush=True,
        )


def by_itself(name: str, sets: Sequence[Recorded]) -> None:
    """Print figures of P(correct) of an answer by its own log-probability, and by further answers."""
    most = min(recorded_.num_samples for recorded_ in sets)
    predictions: dict[int, np.ndarray] = {}
    for m in sorted({0, 1, 3, 5, min(10, most), most}):
        predictions[m] = np.concatenate([recorded_.material(m).held_out()[0] for recorded_ in sets])
    right = np.concatenate([recorded_.right for recorded_ in sets])
    print(f"\n{name}: {right.size} rows, {right.sum()} right.")
    print("| further answers | tokens | AUROC | none minus that | log loss | none minus that |")
    print("|---|---:|---:|---|---:|---|")
    for m, p in predictions.items():
        gaps = auroc_difference(predictions[0], p, right), loss_difference(predictions[0], p, right)
        ranked, lost = gaps if m else ("", "")
        figures = f"| {m} | {tokens(sets, m) if m else 0} | {auroc(p, right):.3f} | {ranked} "
        print(f"{figures}| {log_loss(p, right):.3f} | {lost} |", flush=True)


def main() -> None:
    if not DATA.is_dir():
        sys.exit("The recorded answers are not beside this checkout: ../shared/data")
    for kernel in (FACTS, PAPER):
        print(f"\nMaps, kernel {kernel}")
        by_answers(recorded(TEST, kernel))
    sets = titles()
    for name, title in sets.items():
        by_verdicts(name, title)
    for name, title in sets.items():
        if name not in OTHER:
            by_itself(title, [recorded(name)])
    first = [Recorded(name, embed=True, kernel=FACTS, of="first") for name in (DEV, TEST)]
    by_itself("SmolLM2-135M, the first answer drawn of TriviaQA dev and test", first)


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
