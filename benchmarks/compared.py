"""What it is worth to have the LLM compare its own answers (`EIGENCAL_COMPARE=llm`), by true verdicts.

    python -m benchmarks.compared URL (trivia | support) [--rows 100]

URL: of a running server of Qwen2.5-Coder-1.5B, which compares. trivia: its recorded short answers to
TriviaQA, each row's `answer` judged by the first M of `samples`, verdicts by eye. support: its recorded
sentences (`benchmarks.support`). Raw lambda_max and p(y) by the cosine of whole texts (`paper`), by the
`facts`, by P(same) alone (`llm`) and by the mean of both (`both`, which is served). Intervals are
bootstraps over questions, differences in pairs. Replies are kept in .cache, so that it may be broken off.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.claims import Figure, head
from benchmarks.recorded_evidence import DATA, RECORDED, embedded
from benchmarks.support import JUDGED, is_right
from service.claims.comparison import Comparer, Reply
from service.claims.kernel import compared_texts, kernel_matrix, read_texts, realize_first, with_comparison
from service.embedding.port import FACTS
from service.llm.openai_server import HttpLanguageModel
from service.spectral.reliability import auroc, resampled_aurocs
from service.spectral.resampling import ResampleCounts
from service.spectral.spectrum import Identity, born_probability_of, spectrum

M, RESAMPLES = 3, 1000
Floats = np.ndarray


@dataclass(frozen=True)
class Asked:
    """A question with its first M answers, texts that are judged by them, and which of these are right."""

    prompt: str
    drawn: list[str]
    judged: list[str]
    right: list[bool]

    @property
    def texts(self) -> list[str]:
        return list(dict.fromkeys([*self.drawn, *self.judged]))


def trivia() -> list[Asked]:
    lines = (DATA / "triviaqa_test_qwen1.5b_m10.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [Asked(row["prompt"], row["samples"][:M], [row["answer"]], [bool(row["correct"])]) for row in rows]


def support() -> list[Asked]:
    rows = map(json.loads, (RECORDED / "support_qwen1.5b_m20.jsonl").read_text("utf-8").splitlines())
    found = []
    for row in rows:
        judged = row["samples"][:JUDGED]
        right = [is_right(text, row["reference"]) for text in judged]
        found.append(Asked(row["prompt"], row["samples"][JUDGED : JUDGED + M], judged, right))
    return found


async def compared(asked: Sequence[Asked], url: str, name: str) -> list[Floats]:
    """Return P(same) (n, n) of the texts of each question, and print what it took."""
    kept = RECORDED.parent / "compared" / f"{name}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    replies: dict[str, Reply] = json.loads(kept.read_text()) if kept.exists() else {}
    llm, found, calls, tokens, began = (
        HttpLanguageModel(url, model="m"),
        list[Floats](),
        0,
        0,
        time.monotonic(),
    )
    comparer = Comparer(llm)
    for one in asked:
        comparison = await comparer.compare(one.prompt, one.texts, known=replies)
        calls += len(comparison.replies.keys() - replies.keys())
        tokens += comparison.usage.prompt_tokens
        replies |= comparison.replies
        kept.write_text(json.dumps(replies))
        found.append(comparison.same)
    await llm.stop()
    took = time.monotonic() - began
    print(
        f"{len(asked)} questions: {calls} calls, {tokens} tokens, {took:.0f} s; {len(replies)} replies kept"
    )
    return found


def scores(one: Asked, kernel: Floats) -> list[tuple[float, float]]:
    """Return raw lambda_max and p(y) of each judged text."""
    texts = one.texts
    space = realize_first(kernel, len(set(one.drawn)))
    index = [texts.index(text) for text in one.drawn]
    rows = space[sorted(set(index))]
    found = spectrum(rows, np.bincount(index)[sorted(set(index))])
    served = Identity().serve(found.eigenvalues, found.dimension)
    born = [born_probability_of(found, served, rows, space[texts.index(text)]) for text in one.judged]
    return [(served.lambda_max, p.probability) for p in born]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("set", choices=("trivia", "support"))
    parser.add_argument("--rows", type=int, default=100)
    options = parser.parse_args()
    asked = {"trivia": trivia, "support": support}[options.set]()[: options.rows]
    same = asyncio.run(compared(asked, options.url, options.set))
    beyond = [compared_texts(one.texts, one.prompt, FACTS) for one in asked]
    every = {text for one, texts in zip(asked, beyond, strict=True) for text in (*one.texts, *texts)}
    vectors = embedded(sorted(every, key=len), "all-MiniLM-L6-v2")
    found: dict[str, list[tuple[float, float]]] = {"paper": [], "facts": [], "llm": [], "both": []}
    for one, texts, said in zip(asked, beyond, same, strict=True):
        whole = np.stack([vectors[text] for text in one.texts]).astype(np.float64)
        rows = np.stack([vectors[text] for text in texts]).astype(np.float64)
        facts = kernel_matrix(read_texts(one.texts, texts, one.prompt, len(set(one.drawn))), rows)
        kernels = (whole @ whole.T, facts, with_comparison(facts, said, 1.0), with_comparison(facts, said))
        for name, kernel in zip(found, kernels, strict=True):
            found[name] += scores(one, kernel)
    right = np.array([verdict for one in asked for verdict in one.right])
    group = np.repeat(np.arange(len(asked)), [len(one.judged) for one in asked])
    resamples = ResampleCounts.of(right.size, np.random.default_rng(0), RESAMPLES, group)

    def ranked(values: Sequence[float]) -> Figure:
        column = np.array(values)
        return Figure(auroc(column, right), resampled_aurocs(resamples, column, right))

    print(f"{right.size} texts to {len(asked)} questions, {right.mean():.1%} right, m = {M}, MiniLM")
    print(head("kernel", "AUROC: lambda_max", "less that of `facts`", "p(y)", "less that of `facts`"))
    figures = {
        name: [ranked(column) for column in zip(*values, strict=True)] for name, values in found.items()
    }
    for name, of_kernel in figures.items():
        cells = (
            cell
            for one, facts in zip(of_kernel, figures["facts"], strict=True)
            for cell in (one.told(), "" if name == "facts" else (one - facts).told("+"))
        )
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
