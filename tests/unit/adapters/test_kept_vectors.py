"""Vectors on disk: each text embedded once, by embedder, whatever happens in between."""

import asyncio

import numpy as np
import pytest

from service.errors import EmbedderUnavailable
from service.evaluation.kept import KeptVectors
from tests.support.fakes import FakeEmbedder

TEXTS = [f"text {i}" for i in range(10)]


def vectors(embedder, folder, texts=TEXTS, **options):
    told = []
    kept = KeptVectors(embedder, folder, **options)
    found = asyncio.run(kept.vectors(texts, told.append))
    return found, sum(told)


def test_vectors_are_the_embedders(tmp_path):
    found, told = vectors(FakeEmbedder(8), tmp_path, shard=3)
    assert told == len(TEXTS)
    assert np.array_equal(found, asyncio.run(FakeEmbedder(8).embed(TEXTS)).vectors)


def test_a_second_run_embeds_what_is_new_alone(tmp_path):
    vectors(FakeEmbedder(8), tmp_path)
    again = FakeEmbedder(8)
    found, told = vectors(again, tmp_path, ["new", *TEXTS])
    assert again.calls == [("new",)]
    assert told == 11
    assert np.array_equal(found[1:], asyncio.run(FakeEmbedder(8).embed(TEXTS)).vectors)


def test_equal_texts_are_embedded_once(tmp_path):
    embedder = FakeEmbedder(8)
    found, told = vectors(embedder, tmp_path, ["a", "b", "a"])
    assert embedder.calls == [("a", "b")]
    assert told == 3
    assert np.array_equal(found[0], found[2])


class Fails(FakeEmbedder):
    """Embeds twice, then no more."""

    async def embed(self, texts):
        if len(self.calls) == 2:
            raise EmbedderUnavailable("gone")
        return await super().embed(texts)


def test_finished_shards_outlive_a_failure(tmp_path):
    with pytest.raises(EmbedderUnavailable):
        vectors(Fails(8), tmp_path, shard=4)
    again = FakeEmbedder(8)
    vectors(again, tmp_path, shard=4)
    assert again.calls == [tuple(TEXTS[8:])]
    assert not list(tmp_path.rglob("*.part"))


def test_embedders_do_not_share_vectors(tmp_path):
    vectors(FakeEmbedder(8), tmp_path)
    other = FakeEmbedder(9)
    found, _ = vectors(other, tmp_path)
    assert found.shape == (10, 9)
    assert other.calls


def test_no_text_is_no_vector(tmp_path):
    found, told = vectors(FakeEmbedder(8), tmp_path, [])
    assert (found.shape, told) == ((0, 8), 0)
