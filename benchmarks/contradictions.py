"""Whether a right answer in other words scores above a wrong one in the words of the answers drawn.

`python -m benchmarks.contradictions [FILE]`: all draws say one thing. Raw p(y) of the right text is compared
with that of the wrong one, with the kernel `facts` and with the cosine of whole texts (`paper`), by kind and
language. FILE: pairs of the same form, `drawn` a list or a text; without it the 60 pairs beside this file.
The factors of the kernel were chosen on other pairs, its list of units was completed on these. Needs the
weights of all-MiniLM-L6-v2.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from service.claims.kernel import compared_texts, kernel_vectors, read_texts
from service.embedding.port import FACTS, PAPER, Kernel
from service.spectral.spectrum import Identity, born_probability_of, spectrum

WEIGHTS = Path(__file__).parents[1] / "data" / "weights" / "all-MiniLM-L6-v2"
PAIRS = Path(__file__).with_suffix(".jsonl")


def read_pairs(path: Path) -> list[dict[str, Any]]:
    """Return the pairs of a file; `drawn` is the text that all draws have."""
    pairs = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [
        pair | {"drawn": pair["drawn"] if isinstance(pair["drawn"], str) else pair["drawn"][0]}
        for pair in pairs
    ]


def probabilities(
    pair: Mapping[str, Any], kernel: Kernel, vectors: Mapping[str, np.ndarray]
) -> tuple[float, float]:
    """Return raw p(y) of the right text and of the wrong one, in [0, 1]."""
    texts, question = [pair["drawn"], pair["right"], pair["wrong"]], pair["question"]
    compared = compared_texts(texts, question, kernel)
    space = np.stack([vectors[text] for text in compared])
    if kernel == FACTS:
        space = kernel_vectors(read_texts(texts, compared, question, 1), space)
    found = spectrum(space[:1])
    served = Identity().serve(found.eigenvalues, found.dimension)
    right, wrong = (born_probability_of(found, served, space[:1], space[i]).probability for i in (1, 2))
    return right, wrong


def embedded(pairs: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Return the vector (d,) of every text that a kernel embeds."""
    from sentence_transformers import SentenceTransformer

    texts = dict[str, None]()
    for pair in pairs:
        of_pair = [pair["drawn"], pair["right"], pair["wrong"]]
        texts |= dict.fromkeys(of_pair) | dict.fromkeys(compared_texts(of_pair, pair["question"], FACTS))
    model = SentenceTransformer(str(WEIGHTS), device="cpu")
    return dict(zip(texts, model.encode(list(texts), normalize_embeddings=True), strict=True))


def main(path: Path) -> None:
    """Print the number of pairs with the right text above the wrong one."""
    pairs = read_pairs(path)
    vectors = embedded(pairs)
    print(f"{'':10} {'pairs':>6} {'facts':>6} {'paper':>6}")
    above = {
        kernel: [right > wrong for right, wrong in (probabilities(one, kernel, vectors) for one in pairs)]
        for kernel in (FACTS, PAPER)
    }
    groups = defaultdict[str, list[int]](list)
    for i, pair in enumerate(pairs):
        for name in (pair.get("kind"), pair.get("language"), "all"):
            if name:
                groups[name].append(i)
    for name, places in groups.items():
        counts = [sum(above[kernel][i] for i in places) for kernel in (FACTS, PAPER)]
        print(f"{name:10} {len(places):6} {counts[0]:6} {counts[1]:6}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PAIRS)
