"""Texts cut before they are tokenised have the tokens, and so the vectors, that they have uncut."""

import asyncio
import random
from typing import Any

import numpy as np
import pytest

from service.embedding.cache import TextCut, cut_of
from service.embedding.local import SentenceTransformerEmbedder
from service.llm.weights import MINILM, find
from tests.unit.adapters.test_embedder_port import WEIGHTS

WORDS = [
    "a",
    "Paris",
    "naïve",
    "日本語",
    "🙂",
    "e\u0301",
    "x" * 99,
    "y" * 101,
    "don't",
    "3,141",
    "\u200b",
    "Straße",
]


def words(seed: int, size: int) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(size))


NASTY = {
    "ordinary": "the quick brown fox " * 5000,
    "one word": "x" * 60_000,
    "a word that ends late": "x" * 30_000 + " and then this " * 500,
    "words of a hundred": " ".join(["y" * 100, "z" * 101] * 400),
    "spaces first": " " * 30_000 + "late words " * 300,
    "spaces between": "one" + " " * 30_000 + "two" + "\n" * 30_000 + "three",
    "marks that are dropped": "\u0301" * 30_000 + " late words" * 300,
    "marks on one letter": "e" + "\u0301" * 30_000 + " late words" * 300,
    "control characters": "\u0000\u200b\u00ad" * 10_000 + "late words " * 300,
    "emoji": "🙂" * 20_000,
    "emoji apart": "🙂 " * 20_000,
    "chinese": "日本" * 10_000,
    "punctuation": "!?." * 10_000,
    "no end of a word at the cut": "abcdefghij" * 10 + "," + "k" * 5000 + " z" * 5000,
    "rare then much": "a" * 2047 + "b" * 200 + " word" * 3000,
    **{f"mixed {seed}": words(seed, 3000) for seed in range(8)},
}


@pytest.fixture(scope="module")
def model() -> Any:
    if find(MINILM, WEIGHTS) is None:
        pytest.skip(f"no {MINILM}: python -m service weights fetch {MINILM}")
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(WEIGHTS / MINILM), device="cpu")


@pytest.mark.weights
@pytest.mark.parametrize("name", NASTY)
def test_the_tokens_are_those_of_the_whole_text(model: Any, name: str) -> None:
    text = NASTY[name]
    cut = cut_of(model)
    whole, part = (model.tokenizer(one, truncation=True, max_length=256) for one in (text, cut(text)))
    assert part["input_ids"] == whole["input_ids"]


@pytest.mark.weights
def test_the_vectors_are_those_of_the_whole_texts(model: Any) -> None:
    cut = cut_of(model)
    texts = list(NASTY.values())
    np.testing.assert_allclose(model.encode([cut(t) for t in texts]), model.encode(texts), atol=1e-6)


@pytest.mark.weights
def test_ordinary_texts_are_cut_short(model: Any) -> None:
    cut = cut_of(model)
    assert len(cut(NASTY["ordinary"])) == cut.untouched == 2048
    assert cut("short") == "short"


@pytest.mark.weights
def test_the_embedder_hands_its_model_texts_that_are_cut(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        embedder = SentenceTransformerEmbedder(MINILM, cache_dir=WEIGHTS, load=lambda *_: model)
        await embedder.start()
        await embedder.embed([NASTY["ordinary"], "short", NASTY["emoji apart"]])
        await embedder.stop()

    lengths: list[int] = []
    encode = model.encode

    def recording(texts: list[str], **options: object) -> np.ndarray:
        lengths.extend(map(len, texts))
        return encode(texts, **options)

    monkeypatch.setattr(model, "encode", recording)
    asyncio.run(scenario())
    assert sorted(lengths) == [5, 7, 2048, 2048]  # "short", "warm up"


def test_a_text_is_read_on_until_there_are_tokens_enough() -> None:
    asked = []

    def count(text: str) -> int:
        asked.append(len(text))
        return len(text.split())

    text = " " * 900 + "w " * 900
    assert len(TextCut(count, 10)(text)) == 1280
    assert asked == [80, 320, 1280]
    assert TextCut(lambda _: 0, 10)(text) == text


def test_a_model_that_hides_its_tokenizer_or_reads_all_is_left_alone() -> None:
    assert cut_of(object()) is None
