"""A minimal replica in its own process, which tests can kill or freeze.

    python -m tests.support.job_worker URL LOG [--slow SECONDS]

It starts the store and the jobs with a fake LLM that logs each request to LOG, prints "ready", and runs until
it is killed. A file next to LOG makes it wait: see `hold`.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from service.app import Intervals, Replica, build_replica
from service.calibration.rows import DevRow
from service.embedding.port import Embedded, Embedder
from service.jobs.calibrator import RetryPolicy
from service.jobs.engine import DbosEngine
from service.jobs.model import Setup
from service.llm.prompt import GenerationRequest, Sampling
from service.llm.samples import Draw, Generation
from service.scoring.score import Serving
from service.scoring.scorer import LiveLoad
from tests.support.fakes import FakeEmbedder, FakeLLM, last_user_text
from tests.support.reports import FEW

NUM_SAMPLES, DIMENSION = 6, 32
ANSWERS = ("Paris", "Lyon", "Paris", "Nice", "Paris", "Lille")
LOOK_S = 0.01


def hold(log: Path, *, after: int = sys.maxsize, embedding: bool = False) -> None:
    """Answer only the first `after` requests of the log; with `embedding`, embed nothing.

    Without this, it depends on the speed of the machine whether a job is still running when a test looks.
    """
    made = _held(log).with_suffix(".new")
    made.write_text(f"{after} {int(embedding)}")
    made.rename(_held(log))  # atomic, for concurrent readers


def go_on(log: Path) -> None:
    """Remove the hold."""
    _held(log).unlink()


def _held(log: Path) -> Path:
    return log.with_name(f"{log.name}.held")


def _holds(log: Path) -> tuple[int, bool]:
    """Return the number of answered requests, and whether embedding waits."""
    try:
        after, embedding = _held(log).read_text().split()
    except FileNotFoundError:
        return sys.maxsize, False
    return int(after), embedding == "1"


class LoggingLLM(FakeLLM):
    """Answers depend on the prompt. Each request for answers is logged as a line before it is answered."""

    def __init__(self, log: Path | None = None, slow_s: float = 0.0) -> None:
        super().__init__()
        self._log = log
        self._slow_s = slow_s

    async def generate(self, request: GenerationRequest) -> Generation:
        if request.is_question:
            return await super().generate(request)
        text = last_user_text(request)
        if self._log is not None:
            with self._log.open("a") as log:
                log.write(f"{os.getpid()} {request.num_samples} {text}\n")
            number = len(self._log.read_text().splitlines())
            await asyncio.sleep(self._slow_s)
            while number > _holds(self._log)[0]:
                await asyncio.sleep(LOOK_S)
        got = await super().generate(request)
        shift = int(text.split()[-1])
        drawn = [ANSWERS[(i * (1 + shift % 5) + shift) % len(ANSWERS)] for i in range(request.num_samples)]
        return replace(got, draws=tuple(Draw(text) for text in drawn))


class HeldEmbedder(FakeEmbedder):
    """Waits while embedding is held."""

    def __init__(self, log: Path) -> None:
        super().__init__(DIMENSION)
        self._log = log

    async def embed(self, texts: Sequence[str]) -> Embedded:
        while _holds(self._log)[1]:
            await asyncio.sleep(LOOK_S)
        return await super().embed(texts)


def dev_rows(count: int, samples: Sequence[str] | None = None) -> list[DevRow]:
    kept = None if samples is None else tuple(samples)
    return [
        DevRow(i + 1, f"r{i}", ("Paris" if i % 3 else "Nice",), prompt=f"question {i}", samples=kept)
        for i in range(count)
    ]


@asynccontextmanager
async def replica(
    url: str,
    llm: FakeLLM,
    *,
    embedder: Embedder | None = None,
    engine: DbosEngine | None = None,
    slots: int = 2,
    setup: Setup | None = None,
    patience: RetryPolicy | None = None,
) -> AsyncIterator[Replica]:
    made = build_replica(
        url,
        llm=llm,
        embedder=embedder or FakeEmbedder(DIMENSION),
        serving=Serving(NUM_SAMPLES, Sampling(), Sampling()),
        setup=setup or Setup(),
        slots=slots,
        live=LiveLoad(),
        engine=engine,
        patience=patience,
        # The lease survives a busy machine, on which a process may not run for a second or two.
        intervals=Intervals(active_poll_s=0.1, beat_s=0.2, lease_s=4.0),
        resamples=FEW,
    )
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("log", type=Path)
    parser.add_argument("--slow", type=float, default=0.05)
    options = parser.parse_args()
    llm, embedder = LoggingLLM(options.log, options.slow), HeldEmbedder(options.log)
    async with replica(options.url, llm, embedder=embedder):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
