"""The value of comparisons by the LLM (`EIGENCAL_COMPARE=llm`), by true verdicts.

    python -m benchmarks.compared URL (bare | short | mixed | sentences) [--rows 240] [--draws 3] [--rivals]

URL: a running server of the comparing LLM (Qwen2.5-Coder-1.5B). The answers are its own: `bare`, short
answers to TriviaQA with verdicts by eye; `short`, these and its recorded answers to other questions of
TriviaQA, with verdicts by the rule; `mixed`, `bare` in sentences of mixed wording;
`sentences`, its recorded sentences (`benchmarks.record`) with verdicts by the rule. Each row's `answer` is
judged by the first `--draws` of its `samples`.

The first table has raw lambda_max, raw p(y) and P(correct) for four kernels: the cosine of whole texts
(`paper`), `facts`, P(same) (`llm`), and the weighted mean of both (`served`, as a score has it). The row
`facts` with all recorded samples stands for the cost of the comparisons, spent on samples instead. P(correct)
has cross-validated evidence maps and models. Scores of other authors get the same P(same) in place of an NLI
model: semantic entropy, kernel language entropy, the mean P(same) of the answer with the samples (as UQLM's
NLI scorers), and, with --rivals (needs `make .venv-rivals/.installed`), LM-Polygraph's own code. Intervals
are bootstraps over questions, differences in pairs. The second table has the projection ECE of lambda_max and
the log loss of P(correct) after calibration on random rows, for the other rows. Replies are kept in .cache:
an interrupted run continues.
"""

import argparse
import asyncio
import hashlib
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.claims import Figure, head
from benchmarks.recorded_evidence import (
    DATA,
    QWEN,
    QWEN_DEV,
    RECORDED,
    ROOT,
    Material,
    embedded,
    path_of,
    references_of,
)
from benchmarks.rivals import VENV
from lab.semantic_entropy import kernel_language_entropy, semantic_entropy
from service.calibration.labels import Judged
from service.claims.comparison import MAX_COMPARED, Comparer
from service.claims.kernel import kernel_of, read_texts, realize_first, with_comparison
from service.claims.verdicts import correct
from service.llm.ask import Asker, Reply
from service.llm.client import LLM
from service.spectral.correctness_model import AGREEMENT, fit_model, log_loss
from service.spectral.dev_set import Overlaps, born_probabilities, served_lambda_max, solve, weighted
from service.spectral.evidence import missing_mass
from service.spectral.fit import fit_evidence
from service.spectral.reliability import auroc, reliability_diagram, resampled_aurocs
from service.spectral.resampling import ResampleCounts
from service.spectral.spectrum import TemperatureMap

RESAMPLES, SAME = 1000, 0.5
LABELS, LEAST_OTHERS, SUBSETS = (10, 30, 60, 300), 40, 30
SENTENCES = RECORDED / "sentences_qwen1.5b_m20.jsonl"
FORMS = (
    "The answer is {}.",
    "It is {}.",
    "I think it is {}.",
    "That would be {}.",
    "{} is the answer to this question.",
    "As far as I know, {}.",
    "{}, if I remember correctly.",
    "To the question asked, one would reply with {}.",
    "Most likely {}.",
    "You are looking for {}.",
)
DIMENSION = 384  # of MiniLM
Floats = np.ndarray


@dataclass(frozen=True)
class Row:
    """A question, its samples with their log-probabilities, the judged answer, its verdict, references."""

    prompt: str
    samples: list[str]
    logprob: list[float]
    answer: str
    right: bool
    references: tuple[str, ...]

    def texts(self, num_samples: int) -> list[str]:
        """Return the distinct samples, then the answer and the references if they are not among them."""
        return list(dict.fromkeys([*self.samples[:num_samples], self.answer, *self.references]))

    def index(self, num_samples: int) -> list[int]:
        """Return the position of each sample in `texts`."""
        texts = self.texts(num_samples)
        return [texts.index(text) for text in self.samples[:num_samples]]


def bare() -> list[Row]:
    rows = map(json.loads, (DATA / f"{QWEN}.jsonl").read_text("utf-8").splitlines())
    return [_row(row, bool(row["correct"])) for row in rows]


def _row(row: dict[str, Any], right: bool) -> Row:
    return Row(row["prompt"], row["samples"], row["logprob"], row["answer"], right, references_of(row))


def short() -> list[Row]:
    return [*bare(), *recorded_rows(path_of(QWEN_DEV))]


def mixed() -> list[Row]:
    def sentence(prompt: str, place: int, answer: str) -> str:
        digest = hashlib.sha256(f"{prompt}/{place}".encode()).digest()[0]
        return FORMS[digest % len(FORMS)].replace("{}", answer.strip())

    return [
        replace(
            row,
            samples=[sentence(row.prompt, i, text) for i, text in enumerate(row.samples, start=1)],
            answer=sentence(row.prompt, 0, row.answer),
        )
        for row in bare()
    ]


def sentences() -> list[Row]:
    return recorded_rows(SENTENCES)


def recorded_rows(path: Path) -> list[Row]:
    rows = map(json.loads, path.read_text("utf-8").splitlines())
    return [_row(row, correct(row["answer"], references_of(row))) for row in rows]


async def compared(rows: Sequence[Row], num_samples: int, url: str, name: str) -> list[Floats]:
    """Return P(same) (k, k) of the texts of each row. Print the number of calls, tokens and seconds.

    The answer and the references are compared first, then the most frequent samples, as in a score.
    """
    path = RECORDED.parent / "compared" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    replies: dict[str, Reply] = json.loads(path.read_text()) if path.exists() else {}
    llm = LLM(url, model="m")
    comparer, matrices, calls, tokens, began = Comparer(Asker(llm)), list[Floats](), 0, 0, time.monotonic()
    for row in rows:
        texts, index = row.texts(num_samples), row.index(num_samples)
        frequent = np.argsort(-np.bincount(index), kind="stable").tolist()
        order = list(
            dict.fromkeys([*(texts.index(text) for text in (row.answer, *row.references)), *frequent])
        )
        most = MAX_COMPARED + len(row.references)
        comparison = await comparer.compare(row.prompt, texts, order, most=most, known=replies)
        calls += len(comparison.replies.keys() - replies.keys())
        tokens += comparison.usage.prompt_tokens
        replies |= comparison.replies
        path.write_text(json.dumps(replies))
        matrices.append(comparison.same)
    await llm.stop()
    took = time.monotonic() - began
    print(f"{len(rows)} questions: {calls} calls, {tokens} tokens, {took:.0f} s; {len(replies)} replies kept")
    return matrices


def judged_by(rows: Sequence[Row], num_samples: int, kernels: Sequence[Floats]) -> Judged:
    """Return the rows as rows of a calibration. kernels: (k, k), of the texts of each row."""
    by_reference, by_answer = list[Overlaps](), list[Overlaps]()
    for row, kernel in zip(rows, kernels, strict=True):
        texts, index = row.texts(num_samples), np.array(row.index(num_samples))
        drawn = int(index.max()) + 1
        space = realize_first(kernel, drawn)
        of_row, references = space @ space.T, [texts.index(text) for text in row.references]
        by_reference.append(Overlaps.of(of_row, range(drawn), references, index))
        by_answer.append(Overlaps.of(of_row, range(drawn), [texts.index(row.answer)], index))
    masses = [missing_mass(row.logprob[:num_samples], row.index(num_samples)) for row in rows]
    spectra, texts_of_rows = (
        replace(solve([weighted(of_row) for of_row in answers], DIMENSION), missing_mass=np.array(masses))
        for answers in (by_reference, by_answer)
    )
    right, none = np.array([row.right for row in rows]), np.zeros(len(rows), dtype=np.bool_)
    return Judged(spectra, texts_of_rows, right, none, "given", np.arange(len(rows)))


def by_kernel(judged: Judged) -> dict[str, Floats]:
    """Return raw lambda_max, raw p(y) and cross-validated P(correct), (n,) each."""
    raw, (correct_, _) = TemperatureMap(1.0), Material(judged).held_out()
    return {
        "lambda_max": served_lambda_max(raw, judged.rows),
        "p(y)": born_probabilities(raw, judged.texts),
        "P(correct)": correct_,
    }


def after_calibration(judged: Judged, labels: int) -> tuple[float, float]:
    """Return the projection ECE of lambda_max and the log loss of P(correct) on rows without a label.

    Means over subsets of `labels` rows, on which map and model are fitted.
    """
    figures = list[tuple[float, float]]()
    for subset in range(SUBSETS):
        order = np.random.default_rng([subset, labels]).permutation(len(judged))
        fitted, held = judged.take(order[:labels]), judged.take(order[labels:])
        map_ = fit_evidence(fitted.rows).map
        model = fit_model(fitted.columns(map_), fitted.right, [AGREEMENT])
        served = np.clip(served_lambda_max(map_, held.rows), 0, 1)
        ece = reliability_diagram(served, np.clip(held.rows.alignment[:, 0], 0, 1)).ece
        figures.append((ece, log_loss(model.predict(held.columns(map_)), held.right)))
    ece, loss = np.mean(figures, axis=0).tolist()
    return ece, loss


def by_same(row: Row, num_samples: int, same: Floats) -> dict[str, float]:
    """Return scores of other authors from P(same), higher for more certain."""
    index = np.array(row.index(num_samples))
    counts, k = np.bincount(index), int(index.max()) + 1
    answer = row.texts(num_samples).index(row.answer)
    return {
        "semantic entropy": -semantic_entropy(same[:k, :k] > SAME, counts),
        "kernel language entropy": -kernel_language_entropy(2 * same[:k, :k], index),
        "mean P(same) with the answer": float(same[answer, index].mean()),
    }


def verdicts_compared(rows: Sequence[Row], num_samples: int, same: Sequence[Floats]) -> str:
    """Return in how many rows two other verdicts agree with the row's own: the LLM's and the rule's."""
    agreed = {"the LLM": 0, "the rule": 0}
    for row, matrix in zip(rows, same, strict=True):
        texts = row.texts(num_samples)
        references = [texts.index(text) for text in row.references]
        by_llm = bool((matrix[texts.index(row.answer), references] > SAME).any())
        agreed["the LLM"] += by_llm == row.right
        agreed["the rule"] += correct(row.answer, row.references) == row.right
    counts = ", ".join(f"{name} {count}" for name, count in agreed.items())
    return f"Verdicts that agree with the row's, of {len(rows)}: {counts}"


def by_polygraph(rows: Sequence[Row], num_samples: int, same: Sequence[Floats]) -> dict[str, list[float]]:
    """Return the scores of LM-Polygraph's estimators that take an NLI matrix."""
    matrices = []
    for row, matrix in zip(rows, same, strict=True):
        index = row.index(num_samples)
        matrices.append(matrix[np.ix_(index, index)].tolist())
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "same.json", Path(folder) / "scores.json"
        source.write_text(json.dumps(matrices), "utf-8")
        script = ROOT / "benchmarks" / "rivals_same.py"
        subprocess.run([VENV, "-W", "ignore", script, source, target], check=True)
        scores: dict[str, list[float]] = json.loads(target.read_text("utf-8"))
        return scores


def facts_kernels(rows: Sequence[Row], num_samples: int) -> tuple[list[Floats], list[Floats]]:
    """Return the kernels `paper` and `facts` (k, k) of the texts of each row."""
    texts = [row.texts(num_samples) for row in rows]
    readings = [
        read_texts(some, row.prompt, len(set(row.samples[:num_samples])))
        for row, some in zip(rows, texts, strict=True)
    ]
    distinct = {text for some in (*texts, *(reading.compared for reading in readings)) for text in some}
    vectors = embedded(sorted(distinct, key=len), "all-MiniLM-L6-v2")
    paper, facts = list[Floats](), list[Floats]()
    for whole, reading in zip(texts, readings, strict=True):
        cosines = np.stack([vectors[text] for text in whole]).astype(np.float64)
        paper.append(cosines @ cosines.T)
        facts.append(kernel_of(reading, np.stack([vectors[text] for text in reading.compared])))
    return paper, facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("set", choices=("bare", "short", "mixed", "sentences"))
    parser.add_argument("--rows", type=int, default=240)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--rivals", action="store_true", help="with LM-Polygraph's own code")
    options = parser.parse_args()
    sets = {"bare": bare, "short": short, "mixed": mixed, "sentences": sentences}
    rows = sets[options.set]()[: options.rows]
    m, most = options.draws, min(len(row.samples) for row in rows)
    same = asyncio.run(compared(rows, m, options.url, options.set))
    paper, facts = facts_kernels(rows, m)
    kernels = {
        "paper": paper,
        "facts": facts,
        "llm": [with_comparison(*pair, 1.0) for pair in zip(facts, same, strict=True)],
        "served": [with_comparison(*pair) for pair in zip(facts, same, strict=True)],
    }
    judged = {name: judged_by(rows, m, matrices) for name, matrices in kernels.items()}
    judged[f"facts, m = {most}"] = judged_by(rows, most, facts_kernels(rows, most)[1])
    scores = {
        f"{score}, {name}": column
        for name, part in judged.items()
        for score, column in by_kernel(part).items()
    }
    known = [np.nan_to_num(matrix, nan=0.0) for matrix in same]
    peers = [by_same(row, m, matrix) for row, matrix in zip(rows, known, strict=True)]
    scores |= {name: np.array([peer[name] for peer in peers]) for name in peers[0]}
    if options.rivals:
        scores |= {name: np.array(column) for name, column in by_polygraph(rows, m, known).items()}
    right = np.array([row.right for row in rows])
    resamples = ResampleCounts.of(right.size, np.random.default_rng(0), RESAMPLES)
    print(f"{options.set}: {right.size} questions, {right.mean():.1%} right, m = {m}, MiniLM")
    print(verdicts_compared(rows, m, known))
    figures = {
        name: Figure(auroc(column, right), resampled_aurocs(resamples, column, right))
        for name, column in scores.items()
    }
    print(head("score", "AUROC", "`served` less it"))
    for name, figure in figures.items():
        score = name.split(",")[0]
        base = figures[f"{score if f'{score}, served' in figures else 'p(y)'}, served"]
        print(f"| {name} | {figure.told()} | {(base - figure).told('+')} |")
    numbers = [labels for labels in LABELS if labels + LEAST_OTHERS <= len(rows)]
    print(head("kernel", *(f"{labels} rows: ECE, log loss" for labels in numbers)))
    for name, part in judged.items():
        cells = ("{:.3f}, {:.3f}".format(*after_calibration(part, labels)) for labels in numbers)
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
