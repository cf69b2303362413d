"""1,000 scores of recorded answers through POST /score: what they were before a change of the request path.

    python -m tests.golden.scores

records them in scores.json.gz, without texts: a text is replaced by its hash. Needs ../shared/data. Embedder,
self-checks and calibrations are made up, so that no weights and no fit take part.
"""

import asyncio
import gzip
import hashlib
import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
from numpy.typing import NDArray

from benchmarks.recorded_evidence import DATA, EVERYDAY, QWEN, TEST
from service.app import create_app, serving_of
from service.calibration.calibration import (
    Calibration,
    Selector,
    caller_fingerprint,
    service_fingerprint,
)
from service.embedding.port import FACTS, PAPER, Kernel
from service.llm.prompt import GenerationRequest
from service.llm.samples import Draw, Generation
from service.settings import Settings
from service.spectral.conformal import ConformalReference
from service.spectral.correctness_model import AGREEMENT, SELF_CHECK, CorrectnessModel
from service.spectral.evidence import EvidenceMap
from service.spectral.selective import SelectiveCounts
from service.spectral.spectrum import DepolarizedMap, TemperatureMap
from tests.support.calibrations import Active, calibration
from tests.support.decisions import COUNTS
from tests.support.fakes import FakeEmbedder, FakeLLM, last_user_text
from tests.support.live import in_process
from tests.support.sqlite_store import SqliteStore

KEPT = Path(__file__).with_name("scores.json.gz")
SIZES = (0, 1, 2, 3, 10, 20)
DIMENSION = 48
LABEL = "recorded"
REFUSAL = "I'm sorry, but I cannot answer that."
CHECKED_BY = "fake-llm, prompt 1"
BY_EVIDENCE = EvidenceMap(1.3, 0.2, 0.8)
# Parts of a score that differ from run to run.
CHANGING = ("id", "timings_ms", "created_at")
Item = dict[str, Any]


class Words(FakeEmbedder):
    """The vector of a text is the sum of its words' vectors, so texts with common words are similar."""

    def _vector(self, text: str) -> NDArray[np.float32]:
        words = [super(Words, self)._vector(word) for word in text.split()]
        whole = 0.3 * super()._vector(text)
        total = np.sum([whole, *words], axis=0, dtype=np.float64)
        return np.asarray(total / np.linalg.norm(total), dtype=np.float32)


class Recorded(FakeLLM):
    """Gives recorded answers with their log-probabilities, and a made-up P(Yes)."""

    def __init__(self, script: dict[str, Sequence[Draw]]) -> None:
        super().__init__()
        self.script = script

    def _answer(self, request: GenerationRequest) -> Generation:
        generation = super()._answer(request)
        if request.is_question:
            return generation
        draws = self.script[last_user_text(request)][: request.num_samples]
        return replace(generation, draws=tuple(draws))

    def _yes(self, request: GenerationRequest) -> float | None:
        asked = json.dumps(request.prompt.members["messages"][-1]).encode()
        value = int.from_bytes(hashlib.sha256(asked).digest()[:4]) / 2**32
        return None if value > 0.95 else value


@dataclass(frozen=True)
class World:
    """A service with one active calibration (None: without), and the requests that it gets."""

    name: str
    kernel: Kernel = FACTS
    map: DepolarizedMap | TemperatureMap | EvidenceMap | None = BY_EVIDENCE
    features: tuple[str, ...] = (AGREEMENT, SELF_CHECK)
    has_logprobs: bool = True
    parts: tuple[tuple[str, Any], ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()

    @cached_property
    def embedder(self) -> Words:
        """Return the made-up embedder."""
        return Words(DIMENSION, kernel=self.kernel)

    def calibrations(self) -> list[Calibration]:
        """Return the calibrations of drawn and of supplied answers, both active."""
        if self.map is None:
            return []
        request = serving_of(Settings()).request(prompt="q")
        identity = FakeLLM().identity(request)
        of = self.embedder.identity
        fitted = {"num_samples": 20, "name": self.name} | self._fitted() | dict(self.parts)
        made = replace(calibration(), **fitted)
        checked = CHECKED_BY if SELF_CHECK in self.features else ""
        return [
            replace(made, id=f"cal_{number:026d}", fingerprint=replace(fingerprint, self_check=checked))
            for number, fingerprint in enumerate(
                (service_fingerprint(identity, request.sampling, of), caller_fingerprint(LABEL, of))
            )
        ]

    def _fitted(self) -> dict[str, Any]:
        assert self.map is not None
        size = len(self.features)
        bounds = (-1e9,) * size, (1e9,) * size
        weights = (0.8,) * size
        model = CorrectnessModel(self.features, (0.0,) * size, (1.0,) * size, weights, -0.4, *bounds)
        is_evidence = isinstance(self.map, EvidenceMap)
        sizes = (0, 1, 3, 10, 20) if is_evidence else (3, 10, 20)
        hopeless = SelectiveCounts((0.5, 0.1), (30, 60), (30, 60))
        selectors = {
            m: Selector(self.map, model, hopeless if m == 20 else COUNTS, "given" if m == 10 else "mixed")
            for m in sizes
        }
        plain = DepolarizedMap(1.1, 0.3) if is_evidence else self.map
        fitted: dict[str, Any] = {
            "parameters": dict.fromkeys(range(2, 21), plain),
            "selectors": selectors,
            "recommended": 3,
        }
        if is_evidence:
            fitted |= {"method": "evidence", "evidence": dict.fromkeys(range(1, 21), self.map)}
        return fitted


def reference() -> ConformalReference:
    """Return questions and lengths of answers unlike some of the recorded ones."""
    rng = np.random.default_rng(7)
    questions = rng.standard_normal((300, DIMENSION))
    questions /= np.linalg.norm(questions, axis=1, keepdims=True)
    return ConformalReference(questions.astype(np.float32), rng.integers(1, 4, (300, 20)).astype(np.int32))


WORLDS = (
    World("evidence"),
    World("evidence, agreement only", features=(AGREEMENT,)),
    World("evidence without log-probabilities", has_logprobs=False),
    World("depolarized", map=DepolarizedMap(1.7, 0.25)),
    World("temperature", map=TemperatureMap(1.4), kernel=PAPER),
    World("none", map=None),
    World("few answers", parts=(("num_samples", 5), ("origin", "bundled"))),
    World("unusual questions", parts=(("reference", reference()), ("origin", "both"))),
    World("no self-check", settings=(("self_check", False),)),
    World("compared by the LLM", map=None, settings=(("compare", "llm"),)),
)


def rows() -> list[Item]:
    """Return the recorded rows with at least ten answers."""
    names = (QWEN, EVERYDAY, TEST)
    return [
        json.loads(line)
        for name in names
        for line in (DATA / f"{name}.jsonl").read_text("utf-8").splitlines()
    ]


def long_text(rows_: Sequence[Item], k: int) -> str:
    """Return a long answer made of the k-th answer of several rows."""
    said = [row["samples"][k % len(row["samples"])] for row in rows_]
    return " ".join(f"Part {i + 1} of the reply is {text}." for i, text in enumerate(said))


def requests(world: World) -> Iterator[tuple[Item, list[Draw]]]:
    """Yield a hundred bodies of POST /score, with the answers that the LLM would draw."""
    rng = np.random.default_rng(len(world.name))
    all_rows = [row for row in rows() if row["samples"]]
    with_twenty = [row for row in all_rows if len(row["samples"]) >= 20]
    for number in range(100):
        m = SIZES[number % len(SIZES)]
        source = with_twenty if m == 20 else all_rows
        row = source[int(rng.integers(len(source)))]
        others = [source[int(i)] for i in rng.integers(len(source), size=4)]
        logprobs = row.get("logprob") or [None] * len(row["samples"])
        texts = list(row["samples"][:m])
        draws = [
            Draw(text.strip(), total_logprob=value if world.has_logprobs else None)
            for text, value in zip(texts, logprobs, strict=False)
        ]
        kind = int(rng.integers(10))
        if kind == 0 and m > 1:
            draws = [replace(draw, text=REFUSAL) if i % 2 == 0 else draw for i, draw in enumerate(draws)]
        if kind == 1 and m > 2:
            draws[1] = replace(draws[1], text=" ", total_logprob=None)
        if kind == 2 and m > 1:
            draws = [
                Draw(long_text([row, *others], k), total_logprob=draws[k].total_logprob) for k in range(m)
            ]
        body: Item = {"prompt": f"{row['prompt']} ({number})", "return": ["samples", "modes"]}
        known = [row["reference"]] if isinstance(row["reference"], str) else row["reference"]
        said = (None, None, None, known[0], others[0]["samples"][0], REFUSAL, *row["samples"][:3])
        candidate = said[int(rng.integers(len(said)))]
        if m == 0 or candidate is not None:
            candidate = candidate or known[0]
            body["candidate"] = long_text([row, *others], 0) if kind == 2 else candidate
            body["candidate_logprob"] = -round(float(rng.exponential(2.0)), 3)
        if kind == 3:
            body["target_error"] = (0.05, 0.15, 0.4)[int(rng.integers(3))]
        if kind == 4:
            body["calibration"] = "none"
        if kind == 5:
            body["claims"] = True
        if rng.random() < 0.3 and m:
            body |= {"samples": [draw.text for draw in draws], "source_label": LABEL}
            if all(draw.total_logprob is not None for draw in draws):
                body["logprobs"] = [draw.total_logprob for draw in draws]
            body["self_check"] = bool(rng.random() < 0.5)
        else:
            body["num_samples"] = m
            if kind == 6:
                body["sampling"] = {"temperature": 0.9}
        yield body, draws


@asynccontextmanager
async def serving(world: World, script: dict[str, Sequence[Draw]]) -> AsyncIterator[httpx.AsyncClient]:
    """Run the service of a world, and yield a client."""
    store = SqliteStore()
    store.calibrations = Active(*world.calibrations())
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), get_to_know=False, **dict(world.settings))
        app = create_app(settings, llm=Recorded(script), embedder=world.embedder, store=store)
        async with in_process(app) as http:
            yield http


async def played(world: World) -> list[Item]:
    """Return the responses, without texts and without what differs from run to run."""
    bodies = list(requests(world))
    script = {body["prompt"]: draws for body, draws in bodies}
    found = list[Item]()
    async with serving(world, script) as http:
        for body, _ in bodies:
            response = await http.post("/score", json=body)
            answer = response.json()
            if response.status_code != 200:
                answer = {"status": response.status_code, "code": answer["code"]}
            found.append(without_texts(answer))
    return found


def without_texts(value: Any) -> Any:
    """Return JSON with a hash in place of each text of more than 20 characters or with a capital."""
    if isinstance(value, dict):
        return {name: without_texts(inner) for name, inner in value.items() if name not in CHANGING}
    if isinstance(value, list):
        items = [without_texts(inner) for inner in value]
        are_warnings = items and isinstance(items[0], dict) and "code" in items[0]
        return sorted(items, key=json.dumps) if are_warnings else items
    if isinstance(value, str) and (len(value) > 20 or value != value.lower()):
        return hashlib.sha256(value.encode()).hexdigest()[:8]
    return value


async def all_played() -> dict[str, list[Item]]:
    """Return the responses of all worlds by name."""
    return {world.name: await played(world) for world in WORLDS}


def main() -> None:
    found = json.dumps(asyncio.run(all_played()), separators=(",", ":")).encode()
    KEPT.write_bytes(gzip.compress(found, mtime=0))


if __name__ == "__main__":
    main()
