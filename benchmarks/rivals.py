"""AUROC of P(correct) beside the scores of UQLM and LM-Polygraph, on the same recorded answers.

    make bench-rivals

That makes .venv-rivals with both packages; benchmarks/rivals_scores.py runs there and calls their classes.
Judged is each row's `answer` in both recorded TriviaQA files, by ROUGE-L, with m = 0, 1, 3, 5, 20 answers
drawn beside it. Ours "default": fitted on the other file alone, as the packaged default has seen both; "own
labels": drawn to it and cross-validated (means over `SEEDS` divisions). An answer's own log-probability is
that of a sample with the same text; rows without one are left out. Tokens are counted
with the model's tokenizer. Intervals are bootstraps over rows, differences in pairs. Needs ../shared/data and
the weights; takes about ten minutes.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.few_verdicts import Elsewhere, Seen
from benchmarks.recorded_evidence import DATA, DEV, ROOT, TEST, WEIGHTS, Recorded
from service.calibration.default import MODEL_SHARE, PRIOR_WEIGHT
from service.calibration.labels import Judged
from service.spectral.correctness_model import Columns, fit_correctness, model_prior, stratified_folds
from service.spectral.dev_set import served_lambda_max
from service.spectral.fit import fit_evidence
from service.spectral.reliability import auroc, resampled_aurocs
from service.spectral.resampling import ResampleCounts, percentile_interval
from service.spectral.text_scores import num_words
from tools.recorded_rows import JudgedRows

SIZES = (0, 1, 3, 5, 20)
SETS = (TEST, DEV)
SEEDS = 10
RESAMPLES = 2000
VENV = ROOT / ".venv-rivals" / "bin" / "python"
OURS, BEST = "Eigencal", "P(correct), own labels"
NO_ANSWER = ("mean_log_probability", "log_probability_per_word")  # what one text alone has
Scores = dict[str, np.ndarray]


def own_logprob(row: dict[str, Any]) -> float | None:
    """Return the log-probability of the row's answer: of the samples with this text, the largest."""
    sums = [
        total
        for text, total in zip(row["samples"], row["logprob"], strict=True)
        if text.strip() == row["answer"].strip()
    ]
    return max(sums, default=None)


def cross_validated(right: np.ndarray, columns: Any, prior: Any) -> np.ndarray:
    """Return P(correct) of each row by the other folds; columns: of a mask of rows that a map may see."""
    found = []
    for seed in range(SEEDS):
        fold = stratified_folds(right, 5, np.random.default_rng(seed))
        by_fold = [columns(fold != number) for number in range(5)]
        fit = fit_correctness(columns(fold >= 0), right, fold, prior=prior, by_fold=by_fold)
        assert fit.held_out is not None
        found.append(fit.held_out)
    return np.mean(found, axis=0)


def by_answers(rows: Judged, other: Judged) -> Scores:
    there = Elsewhere.of(Seen(other))
    assert there.map is not None

    def columns(seen: np.ndarray) -> Columns:
        return rows.columns(fit_evidence(rows.rows.take(seen), prior=there.prior).map)

    return {
        "lambda_max, raw": rows.rows.eigenvalues[:, 0],
        "lambda_max, default": served_lambda_max(there.map, rows.rows),
        "P(correct), default": there.model.model.predict(rows.columns(there.map)),
        BEST: cross_validated(rows.right, columns, there.model),
    }


def without_answers(data: Recorded, other: Recorded) -> Scores:
    """Scores of the answer's own log-probability, NaN where there is none."""

    def table(one: Recorded) -> tuple[dict[str, np.ndarray], np.ndarray]:
        sums = np.array([np.nan if x is None else x for x in map(own_logprob, one.rows)])
        words = num_words([row["answer"] for row in one.rows])
        return dict(zip(NO_ANSWER, (sums, sums / words), strict=True)), np.isfinite(sums)

    every, known = table(data)
    theirs, whole = table(other)
    prior = model_prior(
        {name: column[whole] for name, column in theirs.items()},
        other.right[whole],
        NO_ANSWER,
        MODEL_SHARE * PRIOR_WEIGHT,
    )
    columns = {name: column[known] for name, column in every.items()}
    found = {
        "P(correct), default": prior.model.predict(columns),
        BEST: cross_validated(data.right[known], lambda _seen: columns, prior),
    }
    spread = {name: np.full(known.size, np.nan) for name in found}
    for name, column in found.items():
        spread[name][known] = column
    names = ("log-probability of the answer", "the same per word")
    return dict(zip(names, every.values(), strict=True)) | spread


def ours(files: Sequence[Recorded]) -> dict[int, Scores]:
    """Scores (n,) by number of answers, of the rows of both files."""
    judged = [JudgedRows([name], DATA, WEIGHTS, max(SIZES)) for name in SETS]
    found: dict[int, Scores] = {}
    for m in SIZES:
        if m:
            seen = [
                replace(one.rows.at(m), right=file.right) for one, file in zip(judged, files, strict=True)
            ]
            parts = [by_answers(*seen), by_answers(*seen[::-1])]
        else:
            parts = [without_answers(*files), without_answers(*files[::-1])]
        found[m] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return found


def num_tokens(texts: list[str]) -> list[int]:
    """Return the tokens of each answer, with the one that ends it."""
    from tokenizers import Tokenizer

    path = next(WEIGHTS.glob("SmolLM2*/tokenizer.json"), None)
    if path is None:
        sys.exit("The tokenizer of SmolLM2 is not in data/weights: `make run` once leaves it there")
    count = Tokenizer.from_file(str(path))
    return [len(one.ids) + 1 for one in count.encode_batch([f" {text}" for text in texts])]


def theirs(files: Sequence[Recorded], right: np.ndarray, known: np.ndarray) -> dict[int, dict[str, Scores]]:
    """Scores by number of answers and package."""
    rows = []
    for row in (row for one in files for row in one.rows):
        tokens, *each = num_tokens([row["answer"], *row["samples"]])
        rows.append(
            {
                "answer": row["answer"],
                "logprob": own_logprob(row),
                "tokens": tokens,
                "samples": row["samples"][: max(SIZES)],
                "logprobs": row["logprob"][: max(SIZES)],
                "sample_tokens": each[: max(SIZES)],
            }
        )
    fold = np.full(right.size, -1)
    fold[known] = stratified_folds(right[known], 5, np.random.default_rng(0))
    transformers = {"MiniLM": WEIGHTS / "all-MiniLM-L6-v2", "mpnet": WEIGHTS / "all-mpnet-base-v2"}
    given = {
        "rows": rows,
        "right": right.tolist(),
        "fold": fold.tolist(),
        "sizes": SIZES,
        "transformers": {name: str(path) for name, path in transformers.items()},
    }
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "rows.json", Path(folder) / "scores.json"
        source.write_text(json.dumps(given), "utf-8")
        subprocess.run(
            [VENV, "-W", "ignore", ROOT / "benchmarks" / "rivals_scores.py", source, target], check=True
        )
        found = json.loads(target.read_text("utf-8"))
    return {
        int(m): {
            package: {name: np.array(column, dtype=float) for name, column in one.items()}
            for package, one in by_package.items()
        }
        for m, by_package in found.items()
    }


@dataclass(frozen=True)
class Figure:
    """An AUROC, and its values in the resamples that all figures of these rows share."""

    value: float
    drawn: np.ndarray


def bracket(value: float, drawn: np.ndarray, sign: str = "") -> str:
    low, high = percentile_interval(drawn).low, percentile_interval(drawn).high
    return f"{value:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


def tables(name: str, scores: dict[int, dict[str, Scores]], right: np.ndarray, kept: np.ndarray) -> None:
    """AUROC of every score known for all of these rows, then P(correct) less it, on the same answers."""
    right = right[kept]
    resamples = ResampleCounts.of(right.size, np.random.default_rng(0), RESAMPLES)
    found: dict[tuple[str, str], dict[int, Figure]] = {}
    for m in SIZES:
        for package, columns in scores[m].items():
            for score, column in columns.items():
                one = column[kept]
                # One answer has one meaning: such a constant ranks nothing.
                if np.isfinite(one).all() and np.ptp(one) > 1e-9:
                    figure = Figure(auroc(one, right), resampled_aurocs(resamples, one, right))
                    found.setdefault((package, score), {})[m] = figure
    head = " | ".join(f"m = {m}" for m in SIZES)
    print(f"\n{name}: {right.size} rows, {right.sum()} right. AUROC\n\n| | score | {head} |")
    print("|---|---|" + "---|" * len(SIZES))
    for (package, score), by_size in found.items():
        cells = [bracket(by_size[m].value, by_size[m].drawn) if m in by_size else "" for m in SIZES]
        print(f"| {package} | {score} | {' | '.join(cells)} |")
    print(f"\n{name}: {BEST}, less the score\n\n| | score | {head} |")
    print("|---|---|" + "---|" * len(SIZES))
    best = found[OURS, BEST]
    for (package, score), by_size in found.items():
        if (package, score) != (OURS, BEST):
            gaps = [
                bracket(best[m].value - by_size[m].value, best[m].drawn - by_size[m].drawn, "+")
                if m in by_size and m in best
                else ""
                for m in SIZES
            ]
            print(f"| {package} | {score} | {' | '.join(gaps)} |", flush=True)


def main() -> None:
    if not DATA.is_dir():
        sys.exit("The recorded answers are not beside this checkout: ../shared/data")
    files = [Recorded(name, embed=False) for name in SETS]
    right = np.concatenate([one.right for one in files])
    known = np.array([own_logprob(row) is not None for one in files for row in one.rows])
    scores = theirs(files, right, known)
    for m, found in ours(files).items():
        scores[m] = {OURS: found} | scores[m]
    tables("Both files", scores, right, known)


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
