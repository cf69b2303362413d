"""Right answers in other words against wrong answers in the words of the drawn answers.

`python -m benchmarks.contradictions [FILE] [--url URL]`. All drawn answers say the same. The script counts
the pairs with a larger raw p(y) for the right text than for the wrong one, by kind and language, with the
kernel `facts` and with the cosine of whole texts (`paper`). FILE: pairs of the same form, `drawn` a list or a
text; default: the 60 pairs next to this file. The factors of the kernel were chosen on other pairs; its list
of units was completed on these.

URL: a running LLM server that also compares the texts: P(same) alone (`llm`), and the weighted mean with
`facts` (`served`, as a score has it). The prompt and the weight were chosen on other pairs. Needs the weights
of all-MiniLM-L6-v2.
"""

import argparse
import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from service.claims.comparison import Comparer
from service.claims.kernel import (
    LLM_WEIGHT,
    compared_texts,
    kernel_of,
    read_texts,
    with_comparison,
)
from service.embedding.port import FACTS, PAPER, Kernel
from service.llm.ask import Asker
from service.llm.client import LLM
from service.spectral.spectrum import born_probability, serve, spectrum_from_gram

WEIGHTS = Path(__file__).parents[1] / "data" / "weights" / "all-MiniLM-L6-v2"
PAIRS = Path(__file__).with_suffix(".jsonl")


def read_pairs(path: Path) -> list[dict[str, Any]]:
    """Return the pairs of a file; `drawn` is the text that all draws have."""
    pairs = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [
        pair | {"drawn": pair["drawn"] if isinstance(pair["drawn"], str) else pair["drawn"][0]}
        for pair in pairs
    ]


def texts_of(pair: Mapping[str, Any]) -> list[str]:
    return [pair["drawn"], pair["right"], pair["wrong"]]


def pair_kernel(pair: Mapping[str, Any], kernel: Kernel, vectors: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the kernel (3, 3) of the text drawn, the right one and the wrong one."""
    reading = read_texts(texts_of(pair), pair["question"], 1, kernel)
    return kernel_of(reading, np.stack([vectors[text] for text in reading.compared]))


def probabilities(kernel: np.ndarray) -> tuple[float, float]:
    """Return raw p(y) of the right text and of the wrong one, in [0, 1]."""
    found = spectrum_from_gram(kernel[:1, :1], None, 2)
    right, wrong = (born_probability(found, serve(found), kernel[i, :1]).probability for i in (1, 2))
    return right, wrong


def embedded(pairs: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Return the vector (d,) of every text that a kernel embeds."""
    from sentence_transformers import SentenceTransformer

    texts = dict[str, None]()
    for pair in pairs:
        of_pair = texts_of(pair)
        texts |= dict.fromkeys(of_pair) | dict.fromkeys(compared_texts(of_pair, pair["question"]))
    model = SentenceTransformer(str(WEIGHTS), device="cpu")
    return dict(zip(texts, model.encode(list(texts), normalize_embeddings=True), strict=True))


async def compared_by_llm(pairs: Sequence[Mapping[str, Any]], url: str) -> list[np.ndarray]:
    """Return P(same) (3, 3) of the texts of each pair."""
    llm = LLM(url)
    comparer = Comparer(Asker(llm))
    try:
        return [(await comparer.compare(one["question"], texts_of(one))).same for one in pairs]
    finally:
        await llm.stop()


def main(path: Path, url: str) -> None:
    """Print the number of pairs with the right text above the wrong one."""
    pairs = read_pairs(path)
    vectors = embedded(pairs)
    kernels = dict[str, list[np.ndarray]]()
    for kernel in (FACTS, PAPER):
        kernels[kernel] = [pair_kernel(one, kernel, vectors) for one in pairs]
    if url:
        same = asyncio.run(compared_by_llm(pairs, url))
        for name, weight in (("llm", 1.0), ("served", LLM_WEIGHT)):
            kernels[name] = [with_comparison(*one, weight) for one in zip(kernels[FACTS], same, strict=True)]
    above = {
        name: [right > wrong for right, wrong in map(probabilities, of_pairs)]
        for name, of_pairs in kernels.items()
    }
    print(f"{'':10} {'pairs':>6}", *(f"{name:>6}" for name in above))
    groups = defaultdict[str, list[int]](list)
    for i, pair in enumerate(pairs):
        for group in (pair.get("kind"), pair.get("language"), "all"):
            if group:
                groups[group].append(i)
    for group, places in groups.items():
        counts = [sum(one[i] for i in places) for one in above.values()]
        print(f"{group:10} {len(places):6}", *(f"{count:6}" for count in counts))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=PAIRS)
    parser.add_argument("--url", default="", help="of a running LLM server that compares the texts")
    options = parser.parse_args()
    main(options.file, options.url)
