"""Detection of prompts unlike a calibration's rows: false alarms and detections.

    python -m benchmarks.out_of_distribution

Reference rows are recorded TriviaQA questions with SmolLM2's answers (../shared/data). False alarms are
counted on the other rows, over random splits.
"""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.processes import ROOT
from demo.data import RECORDED
from service.claims.facts import words
from service.embedding.local import SentenceTransformerEmbedder
from service.scoring.choice import MAX_OOD_P_VALUE
from service.spectral.conformal import ConformalReference

DATA = ROOT.parent / "shared" / "data"
EMBEDDERS = ("all-MiniLM-L6-v2", "all-mpnet-base-v2")
ANSWERS, SPLITS, SIZES = (3, 20), 60, (150, 300, 500)
LONG = 60  # words of an answer to a chat request
REQUESTS = (
    "Write a Python function that merges two sorted lists without using sort().",
    "Refactor this loop into a list comprehension: for x in xs: if x > 0: ys.append(x * 2)",
    "Why does my React component render twice in development mode?",
    "Give me an SQL query for the ten customers with the highest revenue this quarter.",
    "Explain what this regular expression does: ^(?=.*[A-Z])(?=.*\\d).{8,}$",
    "Write a polite email to my landlord asking him to repair the heating.",
    "Draft a cover letter for a position as a junior data analyst.",
    "Write a short speech for my sister's wedding.",
    "Rewrite this sentence so that it sounds more professional: we messed up the order.",
    "Compose a haiku about autumn rain.",
    "How do I remove red wine stains from a white shirt?",
    "How can I set up a home network with two routers?",
    "What should I consider when I buy a used car?",
    "Plan a three-day trip to Lisbon with two small children.",
    "Give me a vegetarian meal plan for a week, with a shopping list.",
    "How do I train for a half marathon in twelve weeks?",
    "Summarise the advantages and disadvantages of working from home.",
    "Act as an interviewer and ask me five questions about project management.",
    "Translate into French: the meeting has been moved to Thursday afternoon.",
    "Suggest ten names for a bakery that sells sourdough bread.",
)

Vectors, Lengths = NDArray[np.float32], NDArray[np.int32]


def recorded(path: Path) -> tuple[list[str], Lengths]:
    """Return the questions of a file, and the number of words of their answers."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    fewest = min(max(ANSWERS), *(len(row["samples"]) for row in rows))
    lengths = [[len(words(text)) for text in row["samples"][:fewest]] for row in rows]
    return [row["prompt"] for row in rows], np.array(lengths, dtype=np.int32)


def alarms(reference: ConformalReference, questions: Vectors, lengths: Sequence[NDArray[np.int_]]) -> float:
    """Return the share of prompts flagged as unlike the rows."""
    pairs = zip(questions, lengths, strict=True)
    return float(np.mean([reference.p_value(q, w) < MAX_OOD_P_VALUE for q, w in pairs]))


async def detection(name: str) -> None:
    """Print false alarms and detections with one embedder."""
    embedder = SentenceTransformerEmbedder(name, cache_dir=ROOT / "data" / "weights")
    await embedder.start()

    async def vectors(texts: Sequence[str]) -> Vectors:
        return (await embedder.embed(texts)).vectors

    files = [DATA / f"{name_}.jsonl" for name_ in ("triviaqa_dev_smollm2_m40", "triviaqa_test_smollm2_m20")]
    read = [recorded(path) for path in files]
    pool, lengths = await vectors([q for qs, _ in read for q in qs]), np.concatenate([w for _, w in read])
    everyday, everyday_lengths = recorded(RECORDED)
    nq = [json.loads(line)["prompt"] for line in (DATA / "nq_dev.jsonl").read_text().splitlines()]
    others = {"everyday": await vectors(everyday), "nq": await vectors(nq), "chat": await vectors(REQUESTS)}
    await embedder.stop()
    print(f"{name}: share below {MAX_OOD_P_VALUE}, {SPLITS} random splits of {len(pool)} rows")
    for rows in SIZES:
        for m in ANSWERS:
            rng, shares_ = np.random.default_rng(0), list[list[float]]()
            for _ in range(SPLITS):
                order = rng.permutation(len(pool))
                chosen, rest = order[:rows], order[rows:]
                reference = ConformalReference(pool[chosen], lengths[chosen])
                # Without recorded answers, use the rows' own lengths, which carry no information.
                usual = lengths[rng.choice(rest, 300), :m]
                shares_.append([
                    alarms(reference, pool[rest], lengths[rest, :m]),
                    alarms(reference, others["everyday"], everyday_lengths[:, :m]),
                    alarms(reference, others["nq"], usual[: len(nq)]),
                    alarms(reference, others["chat"], usual[: len(REQUESTS)]),
                    alarms(reference, others["chat"], [np.full(m, LONG)] * len(REQUESTS)),
                ])  # fmt: skip
            names = ("false alarms", "everyday", "NQ", "chat", f"chat, {LONG} words")
            means, most = np.mean(shares_, axis=0), np.quantile([shares__[0] for shares__ in shares_], 0.95)
            shares = ", ".join(f"{name} {mean:.1%}" for name, mean in zip(names, means, strict=True))
            print(f"  {rows} rows, {m} answers: {shares} (false alarms, 95th split: {most:.1%})", flush=True)


def main() -> None:
    for name in EMBEDDERS:
        asyncio.run(detection(name))


if __name__ == "__main__":
    main()
