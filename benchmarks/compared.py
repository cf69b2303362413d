"""The value of comparisons by the LLM (`EIGENCAL_COMPARE=llm`), by true verdicts.

    python -m benchmarks.compared URL (bare | mixed | sentences) [--rows 120] [--rivals]

URL: a running server of the comparing LLM (Qwen2.5-Coder-1.5B). The answers are its own: `bare`, short
answers to TriviaQA with verdicts by eye; `mixed`, the same answers in sentences of mixed wording;
`sentences`, its recorded sentences (`benchmarks.record`) with verdicts by the rule. Each row's `answer` is
judged by the first M of its `samples`. Raw lambda_max and p(y) are compared for five kernels: the cosine of
whole texts (`paper`), `facts`, P(same) (`llm`), the weighted mean of both (`served`, as a score has it), and
`facts` with all recorded samples. Scores of other authors get the same P(same) in place of an NLI model:
semantic entropy, kernel language entropy, the mean P(same) of the answer with the samples (as UQLM's NLI
scorers), and, with --rivals (needs `make .venv-rivals/.installed`), LM-Polygraph's own code. Intervals are
bootstraps over questions, differences in pairs. Replies are kept in .cache: an interrupted run continues.
"""

import argparse
import asyncio
import hashlib
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.claims import Figure, head
from benchmarks.recorded_evidence import DATA, QWEN, RECORDED, ROOT, embedded, references_of
from benchmarks.rivals import VENV
from service.claims.comparison import Comparer, Reply
from service.claims.kernel import compared_texts, kernel_matrix, read_texts, realize_first, with_comparison
from service.claims.verdicts import correct
from service.embedding.port import FACTS
from service.llm.openai_server import HttpLanguageModel
from service.spectral.reliability import auroc, resampled_aurocs
from service.spectral.resampling import ResampleCounts
from service.spectral.semantic_entropy import kernel_language_entropy, semantic_entropy
from service.spectral.spectrum import Identity, born_probability_of, spectrum

M, RESAMPLES, SAME = 3, 1000, 0.5
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
Floats = np.ndarray


@dataclass(frozen=True)
class Row:
    """A question, its samples, the judged answer and whether that is right."""

    prompt: str
    samples: list[str]
    answer: str
    right: bool

    def texts(self, num_samples: int) -> list[str]:
        """Return the distinct samples, then the answer if it is not among them."""
        return list(dict.fromkeys([*self.samples[:num_samples], self.answer]))


def bare() -> list[Row]:
    lines = (DATA / f"{QWEN}.jsonl").read_text("utf-8").splitlines()
    rows = map(json.loads, lines)
    return [Row(row["prompt"], row["samples"], row["answer"], bool(row["correct"])) for row in rows]


def mixed() -> list[Row]:
    def sentence(prompt: str, place: int, answer: str) -> str:
        digest = hashlib.sha256(f"{prompt}/{place}".encode()).digest()[0]
        return FORMS[digest % len(FORMS)].replace("{}", answer.strip())

    return [
        Row(
            row.prompt,
            [sentence(row.prompt, i, text) for i, text in enumerate(row.samples, start=1)],
            sentence(row.prompt, 0, row.answer),
            row.right,
        )
        for row in bare()
    ]


def sentences() -> list[Row]:
    rows = map(json.loads, SENTENCES.read_text("utf-8").splitlines())
    return [
        Row(row["prompt"], row["samples"], row["answer"], correct(row["answer"], references_of(row)))
        for row in rows
    ]


async def compared(rows: Sequence[Row], url: str, name: str) -> list[Floats]:
    """Return P(same) (k, k) of the texts of each row. Print the number of calls, tokens and seconds."""
    path = RECORDED.parent / "compared" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    replies: dict[str, Reply] = json.loads(path.read_text()) if path.exists() else {}
    llm = HttpLanguageModel(url, model="m")
    comparer, matrices, calls, tokens, began = Comparer(llm), list[Floats](), 0, 0, time.monotonic()
    for row in rows:
        comparison = await comparer.compare(row.prompt, row.texts(M), known=replies)
        calls += len(comparison.replies.keys() - replies.keys())
        tokens += comparison.usage.prompt_tokens
        replies |= comparison.replies
        path.write_text(json.dumps(replies))
        matrices.append(comparison.same)
    await llm.stop()
    took = time.monotonic() - began
    print(f"{len(rows)} questions: {calls} calls, {tokens} tokens, {took:.0f} s; {len(replies)} replies kept")
    return matrices


def by_kernel(row: Row, num_samples: int, kernel: Floats) -> tuple[float, float]:
    """Return raw lambda_max and p(y) of the answer. kernel: (k, k), of the row's texts."""
    texts, samples = row.texts(num_samples), row.samples[:num_samples]
    space = realize_first(kernel, len(set(samples)))
    index = [texts.index(text) for text in samples]
    drawn = space[sorted(set(index))]
    found = spectrum(drawn, np.bincount(index))
    served = Identity().serve(found.eigenvalues, found.dimension)
    born = born_probability_of(found, served, drawn, space[texts.index(row.answer)])
    return served.lambda_max, born.probability


def by_same(row: Row, same: Floats) -> dict[str, float]:
    """Return scores of other authors from P(same), higher for more certain."""
    texts, samples = row.texts(M), row.samples[:M]
    index = np.array([texts.index(text) for text in samples])
    counts, k = np.bincount(index), len(set(samples))
    return {
        "semantic entropy": -semantic_entropy(same[:k, :k] > SAME, counts),
        "kernel language entropy": -kernel_language_entropy(2 * same[:k, :k], index),
        "mean P(same) with the answer": float(same[texts.index(row.answer), index].mean()),
    }


def by_polygraph(rows: Sequence[Row], same: Sequence[Floats]) -> dict[str, list[float]]:
    """Return the scores of LM-Polygraph's estimators that take an NLI matrix."""
    matrices = []
    for row, matrix in zip(rows, same, strict=True):
        index = [row.texts(M).index(text) for text in row.samples[:M]]
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
    beyond = [compared_texts(some, row.prompt, FACTS) for row, some in zip(rows, texts, strict=True)]
    distinct = {text for some in (*texts, *beyond) for text in some}
    vectors = embedded(sorted(distinct, key=len), "all-MiniLM-L6-v2")
    paper, facts = list[Floats](), list[Floats]()
    for row, whole, shortened in zip(rows, texts, beyond, strict=True):
        cosines = np.stack([vectors[text] for text in whole]).astype(np.float64)
        embeddings = np.stack([vectors[text] for text in shortened]).astype(np.float64)
        reading = read_texts(whole, shortened, row.prompt, len(set(row.samples[:num_samples])))
        paper.append(cosines @ cosines.T)
        facts.append(kernel_matrix(reading, embeddings))
    return paper, facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("set", choices=("bare", "mixed", "sentences"))
    parser.add_argument("--rows", type=int, default=120)
    parser.add_argument("--rivals", action="store_true", help="with LM-Polygraph's own code")
    options = parser.parse_args()
    rows = {"bare": bare, "mixed": mixed, "sentences": sentences}[options.set]()[: options.rows]
    most = min(len(row.samples) for row in rows)
    same = asyncio.run(compared(rows, options.url, options.set))
    paper, facts = facts_kernels(rows, M)
    _, facts_of_all = facts_kernels(rows, most)
    kernels = {
        "paper": paper,
        "facts": facts,
        "llm": [with_comparison(*pair, 1.0) for pair in zip(facts, same, strict=True)],
        "served": [with_comparison(*pair) for pair in zip(facts, same, strict=True)],
    }
    scores = dict[str, list[float]]()
    for name, matrices in (*kernels.items(), (f"facts, m = {most}", facts_of_all)):
        num_samples = most if matrices is facts_of_all else M
        pairs = [by_kernel(row, num_samples, kernel) for row, kernel in zip(rows, matrices, strict=True)]
        for score, column in zip(("lambda_max", "p(y)"), zip(*pairs, strict=True), strict=True):
            scores[f"{score}, {name}"] = list(column)
    known = [np.nan_to_num(matrix, nan=0.0) for matrix in same]
    peers = [by_same(row, matrix) for row, matrix in zip(rows, known, strict=True)]
    scores |= {name: [one[name] for one in peers] for name in peers[0]}
    if options.rivals:
        scores |= by_polygraph(rows, known)
    right = np.array([row.right for row in rows])
    resamples = ResampleCounts.of(right.size, np.random.default_rng(0), RESAMPLES)
    print(f"{options.set}: {right.size} questions, {right.mean():.1%} right, m = {M}, MiniLM")
    columns = {name: np.array(column) for name, column in scores.items()}
    figures = {
        name: Figure(auroc(column, right), resampled_aurocs(resamples, column, right))
        for name, column in columns.items()
    }
    print(head("score", "AUROC", "p(y) of `served` less it"))
    for name, figure in figures.items():
        print(f"| {name} | {figure.told()} | {(figures['p(y), served'] - figure).told('+')} |")


if __name__ == "__main__":
    main()
