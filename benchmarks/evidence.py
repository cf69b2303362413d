"""What evidence is worth in the core, on recorded answers: the tables of docs/benchmarks.md.

    python -m benchmarks.evidence

Needs ../shared/data. First the maps by number of answers, fitted on rows 0-149 and tested on rows 150-399 of
the TriviaQA test file (method, section 6). Then P(correct) of each row's `answer` from 3 answers with evidence
beside lambda_max of 20, on both TriviaQA files; maps and models are cross-validated, the intervals are paired
bootstraps over questions. Answers without a recorded vector (one in eleven) are embedded by the
all-mpnet-base-v2 in data/weights; where that is missing, those rows are left out. Tokens are those of the answers,
with the one that ended each, counted with the model's tokenizer. Last the guarantee of selective answering: 2,000
simulated worlds, and 200 random splits of the recorded rows. Takes about two minutes in one thread.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from threadpoolctl import threadpool_limits

from service.spectral.batch import Answers, dev_set
from service.spectral.born import born_probabilities
from service.spectral.correctness import auroc
from service.spectral.correctness_model import (
    CorrectnessFit,
    fit_correctness,
    fit_model,
    held_out_predictions,
    logit_probability,
)
from service.spectral.evidence import EvidenceSet
from service.spectral.evidence_fit import fit_evidence, held_out_evidence
from service.spectral.evidence_subsets import fit_evidence_by_num_samples
from service.spectral.fit import assign_folds, fit_depolarized, fit_temperature
from service.spectral.logistic import brier, log_loss, log_losses
from service.spectral.maps import CalibrationMap, Identity, TemperatureMap
from service.spectral.missing_mass import logit_missing_mass, mean_log_probability, missing_mass
from service.spectral.paired import Difference, figure_difference, mean_difference
from service.spectral.reliability import projection_brier
from service.spectral.risk import DevSet, risk, served_lambda_max
from service.spectral.rouge import correct
from service.spectral.selective import promise, selective_counts
from service.spectral.strata import stratified_folds, stratified_split
from service.spectral.subsets import fit_by_num_samples

ROOT = Path(__file__).parents[1]
DATA, WEIGHTS = ROOT.parent / "shared" / "data", ROOT / "data" / "weights"
TEST, DEV = "triviaqa_test_smollm2_m20", "triviaqa_dev_smollm2_m40"
D = 768
FIT, HELD = np.arange(150), np.arange(150, 400)
TARGETS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
CONFIDENCE = 0.9


def embedded(texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Vectors of the texts, or none where the weights are not at hand."""
    path = next(WEIGHTS.glob("all-mpnet-base-v2*"), None)
    if path is None or not texts:
        return {}
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(path), device="cpu")
    return dict(zip(texts, model.encode(list(texts), normalize_embeddings=True), strict=True))


class Recorded:
    """One file: answers, log-probabilities, the answer to be judged and its verdict."""

    def __init__(self, name: str) -> None:
        lines = (DATA / f"{name}.jsonl").read_text().splitlines()
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
        with np.load(DATA / f"{name}.npz") as arrays:
            self.vectors, self.drawn, self.references = (arrays[key] for key in ("emb", "S", "Y"))
        self.right = np.array([correct(row["answer"], [row["reference"]]) for row in self.rows])

    @cached_property
    def answer_vectors(self) -> dict[str, np.ndarray]:
        known = {
            text: self.vectors[at]
            for row, drawn, reference in zip(self.rows, self.drawn, self.references, strict=True)
            for text, at in zip([*row["samples"], row["reference"]], [*drawn, reference], strict=True)
        }
        missing = sorted({row["answer"] for row in self.rows} - known.keys())
        return known | embedded(missing)

    def answers(self, m: int, targets: np.ndarray | None = None) -> list[Answers]:
        """The first m answers of each row; the references, or others (n, d) in their place."""
        rows = self.vectors[self.references] if targets is None else targets
        made = []
        for drawn, target in zip(self.drawn[:, :m], rows, strict=True):
            distinct, index = np.unique(drawn, return_inverse=True)
            made.append(Answers(self.vectors[distinct], index, target[None]))
        return made

    def sums(self, m: int) -> list[np.ndarray]:
        return [np.array(row["logprob"][:m]) for row in self.rows]

    def missing(self, m: int) -> np.ndarray:
        pairs = zip(self.sums(m), self.answers(m), strict=True)
        return np.array([missing_mass(one, row.index) for one, row in pairs])

    def evidence(self, m: int) -> EvidenceSet:
        return EvidenceSet(dev_set(self.answers(m), D), self.missing(m))


def entropies(map_: CalibrationMap, dev: DevSet) -> np.ndarray:
    log_p, log_q = map_.log_served(dev.log_eigenvalues, dev.rank, dev.dimension)
    p = np.exp(log_p)
    null = np.where(np.isfinite(log_q), np.exp(log_q) * np.where(np.isfinite(log_q), log_q, 0.0), 0.0)
    return -np.where(p > 0, p * np.where(p > 0, log_p, 0.0), 0.0).sum(axis=1) - (D - dev.rank) * null


# --- the maps by number of answers


def map_row(name: str, map_: CalibrationMap, dev: DevSet, right: np.ndarray, numbers: str) -> str:
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
        paper, flat, ours = fit_temperature(fit.dev).map, fit_depolarized(fit.dev).map, fit_evidence(fit).map
        g = flat.depolarization
        temperature = flat.temperature if m > 1 else 1.0
        lines: list[tuple[str, CalibrationMap, str]] = [
            ("raw", Identity(), "| |"),
            ("temperature", paper, f"{paper.temperature:.3f} | |" if m > 1 else "| |"),
            ("depolarized", flat, f"{temperature:.3f} | {np.log(g / (1 - g)):.3f} | 0"),
            ("evidence", ours.over(held.missing_mass), f"{ours.temperature:.3f} | {ours.intercept:.3f} | {ours.slope:.3f}"),
        ]
        for name, map_, numbers in lines:
            if m == 1 and isinstance(map_, TemperatureMap):
                continue  # a spectrum that is a single 1 has no shape
            print(f"| {m} " + map_row(name, map_, held.dev, data.right[HELD], numbers))


def speed(data: Recorded) -> None:
    """Processor seconds of the evidence fits over those of the depolarised ones."""

    def clock(run: Callable[[], object]) -> float:
        start = time.process_time()
        run()
        return time.process_time() - start

    def both(plain: Callable[[], object], ours: Callable[[], object]) -> str:
        ratios = [clock(ours) / clock(plain) for _ in range(5)]
        return f"{np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"

    rows, made, sums = data.evidence(20), data.answers(20), data.sums(20)
    one = both(
        lambda: [fit_depolarized(rows.dev) for _ in range(20)], lambda: [fit_evidence(rows) for _ in range(20)]
    )
    table = both(
        lambda: fit_by_num_samples(made, "depolarized", dimension=D),
        lambda: fit_evidence_by_num_samples(made, sums, dimension=D),
    )
    print(f"\nProcessor time over that of the depolarised fit: one fit {one}; every number of answers {table}")


# --- P(correct)


@dataclass(frozen=True)
class Features:
    """Columns of each row, by maps that have not seen it; usable: rows whose answer has a vector."""

    columns: dict[str, np.ndarray]
    lambda_max: np.ndarray


def features(data: Recorded, m: int, usable: np.ndarray, *, with_evidence: bool = True) -> Features:
    rows = data.evidence(m).take(usable)
    blank = np.zeros(D, dtype=np.float32)
    blank[0] = 1.0
    targets = np.stack([data.answer_vectors.get(row["answer"], blank) for row in data.rows])
    candidates = dev_set(data.answers(m, targets), D).take(usable)
    fold = assign_folds(len(rows), 5, np.random.default_rng(0))
    p, h, top = np.empty((3, len(rows)))
    maps = held_out_evidence(rows, fold)[1]
    for number, map_ in enumerate(maps):
        held = fold == number
        flat = fit_depolarized(rows.dev.take(~held)).map
        over: CalibrationMap = map_.over(rows.missing_mass[held]) if with_evidence else flat
        p[held] = born_probabilities(over, candidates.take(held))
        h[held] = entropies(over, rows.dev.take(held))
        top[held] = served_lambda_max(over, rows.dev.take(held))
    columns = {"logit_probability": logit_probability(p), "entropy": h}
    if with_evidence:
        sums = [one for one, kept in zip(data.sums(m), usable, strict=True) if kept]
        columns["logit_missing_mass"] = logit_missing_mass(rows.missing_mass)
        columns["mean_log_probability"] = np.array([mean_log_probability(one) for one in sums])
    return Features(columns, top)


def tokens(data: Recorded, m: int) -> float | None:
    """Mean tokens of m answers to a question, the one that ended each included."""
    path = next(WEIGHTS.glob("SmolLM2*/tokenizer.json"), None)
    if path is None:
        return None
    from tokenizers import Tokenizer

    count = Tokenizer.from_file(str(path))
    texts = [f" {text}" for row in data.rows for text in row["samples"][:m]]
    return sum(len(one.ids) + 1 for one in count.encode_batch(texts)) / len(data.rows)


def interval(found: Difference) -> str:
    return f"{found.value:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


def usable_rows(data: Recorded) -> np.ndarray:
    return np.array([row["answer"] in data.answer_vectors for row in data.rows])


def by_verdicts(name: str, data: Recorded) -> None:
    usable = usable_rows(data)
    right, rng = data.right[usable], np.random.default_rng(0)
    many = dev_set(data.answers(20), D).take(usable).eigenvalues[:, 0]
    fold = stratified_folds(right, 5, np.random.default_rng(1))
    alone = held_out_predictions({"lambda_max": logit_probability(many)}, right, ("lambda_max",), fold)
    base = held_out_predictions({}, right, (), fold)
    print(f"\n{name}: {right.size} rows, {right.sum()} right; base rate: log loss {log_loss(base, right):.3f}, Brier {brier(base, right):.4f}; tokens of 20 answers {tokens(data, 20)}")
    print(f"lambda_max of 20: AUROC {auroc(many, right):.3f}, log loss {log_loss(alone, right):.3f}, Brier {brier(alone, right):.4f}")
    for m, with_evidence in ((1, True), (2, True), (3, True), (3, False), (5, True), (10, True), (20, True), (20, False)):
        fit = fit_correctness(features(data, m, usable, with_evidence=with_evidence).columns, right, rng=np.random.default_rng(1))
        assert fit.held_out is not None
        ours = fit.held_out
        found = figure_difference(lambda pick: (auroc(ours[pick], right[pick]), auroc(many[pick], right[pick])), right.size, np.random.default_rng(2), resamples=1000)
        losses = mean_difference(log_losses(ours, right), log_losses(alone, right), rng)
        over_base = mean_difference(log_losses(ours, right), log_losses(base, right), rng)
        best = min(fit.candidates, key=lambda one: one.log_loss)
        print(
            f"| {m} {'with evidence' if with_evidence else 'without'} | {tokens(data, m)} | {len(best.features)} {fit.why_none or ''} | {auroc(ours, right):.3f} | {interval(found)} "
            f"| {best.log_loss:.3f} | {interval(losses)} | {interval(over_base)} | {best.brier:.4f} |"
        )


def main() -> None:
    if not DATA.is_dir():
        sys.exit("The recorded answers are not beside this checkout: ../shared/data")
    test = Recorded(TEST)
    by_answers(test)
    speed(test)
    for name, data in (("TriviaQA test", test), ("TriviaQA dev", Recorded(DEV))):
        by_verdicts(name, data)


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
