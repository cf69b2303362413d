"""The in-process embedder: identity, worker thread, and the real models."""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from service.embedding.local import (
    MAX_CHUNK_TEXTS,
    MAX_CHUNK_TOKENS,
    ModelSource,
    SentenceTransformerEmbedder,
    chunks,
    load_model,
)
from service.embedding.port import EmbedderIdentity
from service.errors import EmbedderUnavailable
from service.llm.weights import MINILM, MPNET, WeightsError, find

ROOT = Path(__file__).resolve().parents[3]
RECORDED = ROOT / "../shared/data"


class TinyModel:
    """Maps a text to (length, 1, 0) in a thread. `gate` blocks it, `fails` makes it raise."""

    max_seq_length = 384
    device = "cpu"

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.threads: set[str] = set()
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.fails: Exception | None = None

    def __call__(self, source: ModelSource) -> "TinyModel":
        return self

    def __getitem__(self, index: int) -> object:
        return object()

    def encode(self, sentences: list[str], **options: object) -> np.ndarray:
        self.batches.append(sentences)
        self.threads.add(threading.current_thread().name)
        self.entered.set()
        self.gate.wait()
        if self.fails is not None:
            raise self.fails
        return np.array([[len(text), 1, 0] for text in sentences], dtype=np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "my-model"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "1_Pooling/config.json").write_text('{"pooling": "mean"}')
    (folder / "README.md").write_text("decides nothing")
    return folder


@asynccontextmanager
async def embedding(
    name: str | Path, cache_dir: Path, *, load: Callable[[ModelSource], object] = load_model
) -> AsyncIterator[SentenceTransformerEmbedder]:
    with patch("service.embedding.local.load_model", load):
        embedder = SentenceTransformerEmbedder(name, cache_dir=cache_dir)
        await embedder.start()
        yield embedder
        await embedder.stop()


async def identity(name: str | Path, cache_dir: Path, **options: Any) -> EmbedderIdentity:
    async with embedding(name, cache_dir, **options) as embedder:
        return embedder.identity


async def test_folder_is_identified_by_its_content(folder: Path, tmp_path: Path) -> None:
    tiny = partial(identity, folder, tmp_path / "cache", load=TinyModel())
    first = await tiny()
    assert (first.name, first.dimension, first.precision) == ("my-model", 3, "float32")
    assert len(first.revision) == len("sha256:") + 16
    (folder / "README.md").write_text("still decides nothing")
    assert await tiny() == first
    (folder / "1_Pooling/config.json").write_text('{"pooling": "cls "}')
    assert (await tiny()).revision != first.revision


async def test_missing_weights_are_explained(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=f"python -m service weights fetch {MPNET}"):
        await identity(MPNET, tmp_path, load=TinyModel())
    with pytest.raises(WeightsError, match=r"no folder .*nowhere/at all, and the model hub does not"):
        await identity(tmp_path / "nowhere/at all", tmp_path, load=TinyModel())
    (tmp_path / "empty").mkdir()
    with pytest.raises(WeightsError, match="embedding model empty cannot be loaded"):
        await identity(tmp_path / "empty", tmp_path / "cache")


async def test_cancelled_caller_does_not_break_the_worker(folder: Path, tmp_path: Path) -> None:
    model = TinyModel()

    async with embedding(folder, tmp_path, load=model) as embedder:
        model.gate.clear()
        model.entered.clear()
        running, waiting = (asyncio.create_task(embedder.embed([text])) for text in ("running", "waiting"))
        await asyncio.to_thread(model.entered.wait)
        running.cancel()
        waiting.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        model.gate.set()
        assert (await embedder.embed(["next"])).vectors.shape == (1, 3)


async def test_long_texts_do_not_block_other_callers(folder: Path, tmp_path: Path) -> None:
    model = TinyModel()
    long = [f"{i:03}" + "x" * 31_000 for i in range(256)]

    async with embedding(folder, tmp_path, load=model) as embedder:
        model.gate.clear()
        model.entered.clear()
        greedy = asyncio.create_task(embedder.embed(long))
        await asyncio.to_thread(model.entered.wait)
        other = asyncio.create_task(embedder.embed(["short"]))
        await asyncio.sleep(0)  # the other asks,
        await asyncio.sleep(0)  # and its batch is running
        model.gate.set()
        await asyncio.gather(greedy, other)
        first, *rest = model.batches[1:]
        assert rest.index(["short"]) == 0
        assert sum(map(len, [first, *rest])) == 257
        assert all(len(batch) * model.max_seq_length <= MAX_CHUNK_TOKENS["cpu"] for batch in [first, *rest])


def test_chunks_hold_every_text_once_and_keep_their_budget() -> None:
    texts = ["", "x" * 40, *("y" * (i * 37 % 900) for i in range(300)), "漢" * 5000, "\udcff"]
    for longest in (None, 128, 384):
        for budget in (1, 1024, 32_768):
            cut = list(chunks(texts, longest, budget))
            assert sorted(i for chunk in cut for i in chunk) == list(range(len(texts)))
            for chunk in cut:
                most = max(2 + len(texts[i].encode(errors="replace")) // 3 for i in chunk)
                tokens = len(chunk) * min(most, longest or most)
                assert len(chunk) == 1 or (len(chunk) <= MAX_CHUNK_TEXTS and tokens <= budget)
    assert list(chunks([], 384, 1024)) == []


async def test_model_failure_is_reported_without_its_message(folder: Path, tmp_path: Path) -> None:
    model = TinyModel()

    async with embedding(folder, tmp_path, load=model) as embedder:
        model.fails = RuntimeError("secret words")
        with pytest.raises(EmbedderUnavailable, match="RuntimeError") as raised:
            await embedder.embed(["a"])
        assert "secret" not in raised.value.detail
        model.fails = None
        assert (await embedder.embed(["a"])).vectors.shape == (1, 3)


@patch("service.embedding.local.load_model", TinyModel())
async def test_not_started_or_stopped_embedder_reports_it(folder: Path, tmp_path: Path) -> None:
    embedder = SentenceTransformerEmbedder(folder, cache_dir=tmp_path)
    for act in (embedder.check(), embedder.embed(["a"]), embedder.embed([])):
        with pytest.raises(EmbedderUnavailable, match="not loaded"):
            await act
    with pytest.raises(EmbedderUnavailable):
        _ = embedder.identity
    await embedder.start()
    await embedder.stop()
    await embedder.stop()
    with pytest.raises(EmbedderUnavailable):
        await embedder.embed(["a"])


def weights_dir() -> Path:
    return Path(os.environ.get("EIGENCAL_TEST_WEIGHTS_DIR", ROOT / "data/weights"))


@pytest.fixture(scope="module")
def minilm() -> Path:
    folder = find(MINILM, weights_dir())
    if folder is None:
        pytest.skip(f"no {MINILM}: python -m service weights fetch {MINILM}")
    return folder


@pytest.fixture(scope="module")
def recorded() -> tuple[list[str], np.ndarray]:
    if find(MPNET, weights_dir()) is None:
        pytest.skip(f"no {MPNET}: python -m service weights fetch {MPNET}")
    if not RECORDED.is_dir():
        pytest.skip("no recorded data in ../shared/data")
    lines = (RECORDED / "triviaqa_test_smollm2_m20.jsonl").read_text().splitlines()[:40]
    with np.load(RECORDED / "triviaqa_test_smollm2_m20.npz") as arrays:
        numbers, vectors = arrays["S"], arrays["emb"]
    texts = {
        text: vectors[number]
        for line, row in zip(lines, numbers, strict=False)
        for text, number in zip(json.loads(line)["samples"], row, strict=True)
    }
    chosen = list(texts)[::5]
    return chosen, np.stack([texts[text] for text in chosen])


@pytest.mark.weights
async def test_minilm_separates_meanings_regardless_of_batches(minilm: Path) -> None:
    texts = ["Paris", "The capital of France", "A bicycle has two wheels", "", "word " * 2000]
    found = await identity(f"sentence-transformers/{MINILM}", weights_dir())
    assert found == EmbedderIdentity(MINILM, "sha256:53aa51172d142c89", 384, "float32")
    async with embedding(minilm, weights_dir()) as embedder:
        together = (await embedder.embed(texts)).vectors
    async with embedding(MINILM, weights_dir()) as embedder:
        alone = np.concatenate([(await embedder.embed([text])).vectors for text in texts])
    np.testing.assert_allclose(together, alone, atol=2e-6)
    assert together[0] @ together[1] > together[0] @ together[2] + 0.2


@pytest.mark.mpnet
@pytest.mark.shared
async def test_mpnet_reproduces_the_recorded_vectors(recorded: tuple[list[str], np.ndarray]) -> None:
    texts, vectors = recorded
    async with embedding(MPNET, weights_dir()) as embedder:
        assert embedder.identity == EmbedderIdentity(MPNET, "sha256:78c0197b6159d926", 768, "float32")
        rows = (await embedder.embed(texts)).vectors
    assert len(texts) > 20
    assert 1 - np.sum(rows.astype(float) * vectors, axis=1).min() < 1e-5
