"""Synthetic answers for the spectral benchmarks: float32 vectors that repeat like recorded answers."""

from pathlib import Path

import numpy as np

from lab.vectors import Answers

DIMENSION = 768
DATA = Path(__file__).parents[2] / "shared" / "data"
DEV, TEST = "triviaqa_dev_smollm2_m40", "triviaqa_test_smollm2_m20"


def prompt(rng: np.random.Generator, num_samples: int, distinct: int) -> Answers:
    """Return a prompt with `distinct` answers among `num_samples`, and one reference."""
    vectors = rng.standard_normal((distinct, DIMENSION)) + 1.5 * rng.standard_normal(DIMENSION)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = np.append(np.arange(distinct), rng.integers(0, distinct, num_samples - distinct))
    reference = vectors[:1] + rng.standard_normal((1, DIMENSION)) / np.sqrt(DIMENSION)
    return Answers(vectors.astype(np.float32), index, reference.astype(np.float32))


def prompts(count: int, num_samples: int, share: float, seed: int = 0) -> list[Answers]:
    """Return `count` prompts. The number of distinct answers varies evenly around `share` of the samples."""
    rng = np.random.default_rng(seed)
    spread = min(share, 1 - share)
    shares = rng.permutation(np.linspace(share - spread, share + spread, count))
    sizes = np.rint(num_samples * shares).astype(int)
    return [prompt(rng, num_samples, int(max(size, 1))) for size in sizes]


def recorded(count: int | None = None, name: str = TEST, num_samples: int = 20) -> list[Answers] | None:
    """Return the first recorded TriviaQA prompts with `num_samples` answers each; None without the data."""
    if not DATA.is_dir():
        return None
    with np.load(DATA / f"{name}.npz") as arrays:
        vectors, drawn, references = (arrays[key] for key in ("emb", "S", "Y"))
    prompts_ = []
    for samples, reference in zip(drawn[:count, :num_samples], references[:count], strict=True):
        distinct, index = np.unique(samples, return_inverse=True)
        prompts_.append(Answers(vectors[distinct], index, vectors[[reference]]))
    return prompts_
