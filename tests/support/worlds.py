"""Synthetic prompts: rows for the command, and splits with known parameters."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from lab.splits import Split
from service.calibration.labels import LabelledRows
from service.calibration.material import all_texts, assemble
from service.calibration.rows import DevRow
from service.llm.samples import Draw

CITIES = ("Paris", "Lyon", "Nice", "Lille", "Metz", "Brest", "Tours", "Dijon")


def rows(count: int = 40, m: int = 8, seed: int = 1) -> list[dict]:
    """Return rows of a file. The reference is among the answers about half the time."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        p = rng.dirichlet(np.full(len(CITIES), 0.5))
        samples = [f"{i} {city}" if rng.random() < 0.3 else str(city) for city in rng.choice(CITIES, m, p=p)]
        hit = rng.random() < 0.5
        row = {"prompt": f"q{i}", "reference": samples[0] if hit else f"none of these {i}"}
        logprobs = [round(float(x), 3) for x in -rng.gamma(2.0, 1.0, m)]
        made.append(row | {"answer": samples[0], "samples": samples, "logprob": logprobs})
    return made


def write(path: Path, made: Sequence[dict], *, drop: Sequence[str] = ()) -> Path:
    """Write rows as JSONL without the fields in `drop`."""
    kept = [{k: v for k, v in row.items() if k not in drop} for row in made]
    path.write_text("".join(json.dumps(row) + "\n" for row in kept))
    return path


def stored(made: Sequence[dict], *, tells: bool = True) -> list[DevRow]:
    """Return the rows as `DevRow`s. tells: with their log-probabilities."""
    kept = []
    for i, row in enumerate(made):
        logprobs = row["logprob"] if tells else [None] * len(row["samples"])
        draws = tuple(Draw(t, total_logprob=p) for t, p in zip(row["samples"], logprobs, strict=True))
        texts = {name: row[name] for name in ("prompt", "answer")} | {"samples": tuple(row["samples"])}
        kept.append(replace(DevRow(i + 1, None, (row["reference"],), **texts), draws=draws, complete=True))
    return kept


def split(made: Sequence[dict], dimension: int = 24, *, tells: bool = True) -> Split:
    """Return a split with random vectors, the same for equal texts."""
    kept = stored(made, tells=tells)
    texts = all_texts(kept)
    vectors = np.stack([vector(text, dimension) for text in texts])
    place = {text: i for i, text in enumerate(texts)}
    return Split(LabelledRows(assemble(kept, len(made[0]["samples"]), vectors, place, dimension)))


def vectors(split: Split) -> dict[str, np.ndarray]:
    """Return the vector of each answer and reference of a split."""
    texts = [*chain(*split.texts), *chain(*(row.right_texts for row in split.material.rows))]
    return {text: vector(text, split.material.dimension) for text in texts}


def vector(text: str, dimension: int) -> np.ndarray:
    """Return a unit vector: the city's plus a small part specific to the text."""
    city = np.random.default_rng(list(text.rsplit(maxsplit=1)[-1].encode())).standard_normal(dimension)
    own = np.random.default_rng(list(text.encode())).standard_normal(dimension)
    made = city + 0.4 * own
    return (made / np.linalg.norm(made)).astype(np.float32)
