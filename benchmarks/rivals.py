"""AUROC of P(correct) and of the scores of UQLM and LM-Polygraph on the same recorded answers.

    make bench-rivals
    python -m benchmarks.rivals --url http://127.0.0.1:8000

The target creates .venv-rivals with both packages; benchmarks/rivals_scores.py runs there and calls their
classes. Each row's `answer` is judged by m = 0, 3, 10, 20 samples, as far as they exist; verdicts are the
recorded ones if a set has them, else by words. Map and model of P(correct) are cross-validated, and the map
is shrunk to that of another set of the same LLM (means over `SEEDS` divisions). The kernel is `facts` or,
if noted, the cosine. The log-probability of an answer is recorded, or taken from a sample with the same
text; rows without one are left out. For sets with recorded self-checks, P(correct) also uses them. With
`--url` of a running server of the LLM of these sets, that LLM judges their answers for UQLM's LLMJudge and
p_true and for LM-Polygraph's PTrue, with the prompts of these packages (half an hour or more on two cores).
Intervals are bootstraps over rows; differences are paired. Needs ../shared/data and, in data/weights, the
embedders and, for sets without numbers of tokens, the tokenizer of the LLM; takes about ten minutes without
`--url`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.recorded_evidence import (
    DATA,
    DEV,
    EVERYDAY,
    NAMES,
    P_TRUE,
    QWEN,
    ROOT,
    TEST,
    WEIGHTS,
    Material,
    Recorded,
    known_for,
    tokenizer_of,
)
from lab.text_scores import num_words
from service.embedding.port import FACTS, PAPER, Kernel
from service.spectral.correctness_model import stratified_folds
from service.spectral.dev_set import served_lambda_max
from service.spectral.reliability import auroc, resampled_aurocs
from service.spectral.resampling import ResampleCounts, percentile_interval

SIZES = (0, 3, 10, 20)
SEEDS = 10
RESAMPLES = 2000
SETS = {NAMES[QWEN]: (QWEN,), NAMES[EVERYDAY]: (EVERYDAY,), "SmolLM2-135M, both TriviaQA files": (TEST, DEV)}
VENV = ROOT / ".venv-rivals" / "bin" / "python"
OURS, BEST = "Eigencal", "P(correct), own labels"
CHECKED = "P(correct) with self-check, own labels"
Scores = dict[str, np.ndarray]


def of_answer(name: str, data: Recorded) -> Scores:
    """Return the log-probability of each answer, which many packages use as a score, and its self-check."""
    sums = np.array([row["answer_logprob"] for row in data.rows])
    words = num_words([row["answer"] for row in data.rows])
    checks = {"self-check": p_true(name)} if name in P_TRUE else {}
    return {"log-probability of the answer": sums, "the same per word": sums / words, **checks}


def p_true(name: str) -> np.ndarray:
    """Return the recorded self-checks (n,) of a set, in [0, 1]."""
    return np.array(json.loads((DATA / f"{P_TRUE[name]}.json").read_text("utf-8")))


def by_kernel(name: str, data: Recorded, m: int, kernel: Kernel) -> Scores:
    """Return our scores (n,) with m answers."""
    material = data.material(m)
    lambda_max = {
        "lambda_max, raw": material.rows.eigenvalues[:, 0],
        "lambda_max, other set": served_lambda_max(known_for(name, m, kernel)[0], material.rows),
    }
    _, prior = known_for(name, m, kernel)
    labelled = [material.held_out(seed, prior=prior)[0] for seed in range(SEEDS)]
    columns = {
        **(lambda_max if m else {}),
        BEST: np.mean(labelled, axis=0),
    }
    if name in P_TRUE:
        with_checks = Material(replace(material.judged, p_true=p_true(name)))
        checked = [with_checks.held_out(seed, prior=prior)[0] for seed in range(SEEDS)]
        columns[CHECKED] = np.mean(checked, axis=0)
    return {f"{score}{'' if kernel == FACTS else ', cosine'}": column for score, column in columns.items()}


def ours(names: Sequence[str], sizes: Sequence[int]) -> dict[int, Scores]:
    """Return our scores (n,) of the rows of all files, by number of answers."""
    parts_by_size: dict[int, list[Scores]] = {m: [] for m in sizes}
    for name in names:
        by_size: dict[int, Scores] = {m: {} for m in sizes}
        for kernel in (FACTS, PAPER):
            data = Recorded(name, embed=True, kernel=kernel, of="spoken")
            for m in sizes:
                if m or kernel == FACTS:  # with a single text the kernel has no effect
                    by_size[m] |= by_kernel(name, data, m, kernel)
        by_size[0] |= of_answer(name, data)
        for m in sizes:
            parts_by_size[m].append(by_size[m])
    return {
        m: {s: np.concatenate([part[s] for part in parts]) for s in parts[0]}
        for m, parts in parts_by_size.items()
    }


def num_tokens(row: Mapping[str, Any], count: Any) -> list[int]:
    """Return the number of tokens of the answer and of each sample, including the end token."""
    if "ntok" in row:
        return list(row["ntok"])
    texts = [f" {text}" for text in (row["answer"], *row["samples"])]
    return [len(encoding.ids) + 1 for encoding in count.encode_batch(texts)]


def theirs(files: Sequence[Recorded], sizes: Sequence[int], url: str | None) -> dict[int, dict[str, Scores]]:
    """Return the scores of other packages by number of answers and package.

    url: of the LLM server that judges the answers; None: without the scores that need one.
    """
    rows, count = [], tokenizer_of(files[0].names[0])
    if count is None and any("ntok" not in row for file in files for row in file.rows):
        sys.exit(f"The tokenizer of the LLM of {files[0].names[0]} is not in data/weights")
    for row in (row for file in files for row in file.rows):
        tokens, *sample_tokens = num_tokens(row, count)
        rows.append(
            {
                "question": row["prompt"],
                "answer": row["answer"],
                "logprob": row["answer_logprob"],
                "tokens": tokens,
                "samples": row["samples"],
                "logprobs": row["logprob"],
                "sample_tokens": sample_tokens,
            }
        )
    right = np.concatenate([file.right for file in files])
    fold = stratified_folds(right, 5, np.random.default_rng(0))
    transformers = {"MiniLM": WEIGHTS / "all-MiniLM-L6-v2", "mpnet": WEIGHTS / "all-mpnet-base-v2"}
    payload = {
        "rows": rows,
        "right": right.tolist(),
        "fold": fold.tolist(),
        "sizes": sizes,
        "url": url,
        "transformers": {name: str(path) for name, path in transformers.items()},
    }
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "rows.json", Path(folder) / "scores.json"
        source.write_text(json.dumps(payload), "utf-8")
        subprocess.run(
            [VENV, "-W", "ignore", ROOT / "benchmarks" / "rivals_scores.py", source, target], check=True
        )
        scores = json.loads(target.read_text("utf-8"))
    return {
        int(m): {
            package: {name: np.array(column, dtype=float) for name, column in file.items()}
            for package, file in by_package.items()
        }
        for m, by_package in scores.items()
    }


@dataclass(frozen=True)
class Figure:
    """An AUROC and its values in the resamples, which all figures of these rows share."""

    value: float
    drawn: np.ndarray


def bracket(value: float, drawn: np.ndarray, sign: str = "") -> str:
    low, high = percentile_interval(drawn).low, percentile_interval(drawn).high
    return f"{value:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


def tables(name: str, scores: dict[int, dict[str, Scores]], right: np.ndarray) -> None:
    """Print the AUROC of each score, then the differences of ours from it, on the same answers."""
    resamples = ResampleCounts.of(right.size, np.random.default_rng(0), RESAMPLES)
    figures: dict[tuple[str, str], dict[int, Figure]] = {}
    for m, by_package in scores.items():
        for package, columns in by_package.items():
            for score, column in columns.items():
                # Constant scores, as with a single answer, have no ranking.
                if np.isfinite(column).all() and np.ptp(column) > 1e-9:
                    figure = Figure(auroc(column, right), resampled_aurocs(resamples, column, right))
                    figures.setdefault((package, score), {})[m] = figure
    head = "| | score | " + " | ".join(f"m = {m}" for m in scores) + " |"
    line = "|---|---|" + "---|" * len(scores)
    print(f"\n{name}: {right.size} rows, {right.sum()} right. AUROC\n\n{head}\n{line}")
    for (package, score), by_size in figures.items():
        cells = [bracket(by_size[m].value, by_size[m].drawn) if m in by_size else "" for m in scores]
        print(f"| {package} | {score} | {' | '.join(cells)} |")
    for of_ours in (BEST, CHECKED):
        if (OURS, of_ours) not in figures:
            continue
        print(f"\n{name}: {of_ours}, less the score\n\n{head}\n{line}")
        best = figures[OURS, of_ours]
        for (package, score), by_size in figures.items():
            if (package, score) != (OURS, of_ours):
                gaps = [
                    bracket(best[m].value - by_size[m].value, best[m].drawn - by_size[m].drawn, "+")
                    if m in by_size
                    else ""
                    for m in scores
                ]
                print(f"| {package} | {score} | {' | '.join(gaps)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="of a running server of Qwen2.5-Coder-1.5B")
    url = parser.parse_args().url
    if not DATA.is_dir():
        sys.exit("The recorded answers are not beside this checkout: ../shared/data")
    for name, names in SETS.items():
        files = [Recorded(file, embed=False, of="spoken") for file in names]
        sizes = [m for m in SIZES if m <= min(file.num_samples for file in files)]
        scores = theirs(files, sizes, url if set(names) <= set(P_TRUE) else None)
        for m, scores_of_ours in ours(names, sizes).items():
            scores[m] = {OURS: scores_of_ours} | scores[m]
        tables(name, scores, np.concatenate([file.right for file in files]))


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
