"""Names on the model hub: files fetched and kept, and messages, with the real client and a local hub."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.llm.weights import MPNET
from tests.support.model_hub import ModelHub

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "paris", "lyon"]
FIRST, SECOND = "1" * 40, "2" * 40


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence-transformers model of random weights that pools by the first token."""
    # Not above: importing them takes seconds in every process that collects the tests.
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    base = tmp_path_factory.mktemp("tiny")
    (base / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizerFast(vocab_file=str(base / "vocab.txt")).save_pretrained(base)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(WORDS), **sizes)).save_pretrained(base)
    made = SentenceTransformer(modules=[Transformer(str(base)), Pooling(16, pooling_mode="cls")])
    made.save_pretrained(str(base / "saved"))
    return base / "saved"


class Loader:
    """The program in a process of its own; its cache is HF_HOME, and its hub the one given."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def __call__(self, name: str) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        return told


@contextmanager
def loader(tmp_path: Path, **environment: str) -> Iterator[Loader]:
    command = [sys.executable, "-m", "tests.support.load_embedders", str(tmp_path / "cache")]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "SENTENCE_TRANSFORMERS"))}
    kept |= {"HF_HOME": str(tmp_path / "hf"), **environment}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=kept, **pipes)
    try:
        with process:
            yield Loader(process)
    finally:
        process.kill()


def test_name_is_fetched_once_known_by_its_commit_and_outlives_the_hub(tiny: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    own = SentenceTransformer(str(tiny), device="cpu").encode(["paris"], normalize_embeddings=True)
    hub = ModelHub()
    hub.models |= {
        f"sentence-transformers/{MPNET}": (tiny, FIRST),
        "sentence-transformers/tiny": (tiny, FIRST),
    }
    hub.models["somebody/tiny"] = (tiny, FIRST)
    with hub.running(), loader(tmp_path, HF_ENDPOINT=hub.url) as load:
        found = load("somebody/tiny")
        assert (found["name"], found["revision"]) == ("somebody/tiny", FIRST)
        np.testing.assert_allclose(found["vector"], own[0], atol=1e-6)
        assert (tmp_path / "hf/hub/models--somebody--tiny/snapshots" / FIRST).is_dir()
        assert load("tiny")["name"] == "sentence-transformers/tiny"
        full = load(f"sentence-transformers/{MPNET}")
        assert (full["name"], full["revision"]) == (MPNET, FIRST)

        hub.models["somebody/tiny"] = (tiny, SECOND)
        assert load("somebody/tiny")["revision"] == SECOND
        unknown = load("somebody/unknown")["error"]
        assert unknown.startswith("There is no folder somebody/unknown, and the model hub does not give it (")
        assert "Name a folder with the model" in unknown


def test_without_a_hub_the_cache_serves_and_what_is_not_in_it_is_named(tiny: Path, tmp_path: Path) -> None:
    hub, here = ModelHub(models={"somebody/tiny": (tiny, FIRST)}), ExitStack()
    here.enter_context(hub.running())
    with here, loader(tmp_path, HF_ENDPOINT=hub.url) as load:
        found = load("somebody/tiny")
        here.close()  # nobody listens there now
        assert load("somebody/tiny") == found
        missing = load("somebody/other")["error"]
        assert missing.startswith("There is no folder somebody/other, and the model hub does not give it (")
        assert "\n" not in missing
        full = load(f"sentence-transformers/{MPNET}")["error"]
        assert full.endswith(f"python -m service weights fetch {MPNET}")


def test_offline_the_hub_is_not_asked(tiny: Path, tmp_path: Path) -> None:
    hub = ModelHub(models={"somebody/tiny": (tiny, FIRST)})
    with hub.running(), loader(tmp_path, HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="1") as load:
        assert "environment variable" in load("somebody/tiny")["error"]
