"""Rows as vectors: each text its own vector, and no copy of what needs none."""

import numpy as np

from service.domain.calibrating.material import all_texts, assemble
from service.domain.jobs.model import DevRow
from service.domain.jobs.store import StoredRow
from service.domain.models import Draw


def stored(line: int, samples: str, *references: str) -> StoredRow:
    return StoredRow(
        DevRow(line, None, references, prompt=f"p{line}"), tuple(Draw(text) for text in samples), True
    )


def test_every_text_has_its_own_vector() -> None:
    rows = [stored(1, "abca", "r"), stored(2, "dbe", "a", "s"), stored(3, "cba", "s")]
    texts = all_texts(rows)
    vectors = np.random.default_rng(0).standard_normal((len(texts), 4)).astype(np.float32)
    place = {text: i for i, text in enumerate(texts)}
    made = assemble(rows, 4, vectors, place, 4)
    for row, answers in zip(rows, made.answers, strict=True):
        drawn = answers.vectors[answers.index]
        assert np.array_equal(drawn, [vectors[place[d.text]] for d in row.draws])
        assert np.array_equal(answers.references, [vectors[place[text]] for text in row.row.references])
    assert made.full.tolist() == [0]


def test_answers_seen_first_in_one_prompt_are_no_copy() -> None:
    rows = [stored(1, "abc", "r"), stored(2, "dbe", "s")]
    texts = all_texts(rows)
    vectors = np.eye(len(texts), dtype=np.float32)
    made = assemble(rows, 3, vectors, {text: i for i, text in enumerate(texts)}, len(texts))
    assert [np.shares_memory(one.vectors, vectors) for one in made.answers] == [True, False]
