"""A replica in miniature, run as a process of its own so that it can be killed or frozen.

    python -m tests.support.job_worker URL NAME LOG [--slow SECONDS]

It starts the store and the jobs with a fake LLM that writes every request to LOG, prints "ready", and runs
until it is killed.
"""

import argparse
import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from service.adapters.jobs.engine import JobEngine
from service.app.replica import Intervals, Replica, build_replica
from service.domain.jobs.model import DevRow
from service.domain.jobs.setup import Setup
from service.domain.jobs.waiting import Patience
from service.domain.models import Draw, Generation, GenerationRequest, Sampling
from service.domain.ports import LanguageModel
from service.domain.serving import LiveLoad, Serving
from tests.support.fakes import FakeEmbedder, FakeLLM, last_user_text

NUM_SAMPLES = 6
ANSWERS = ("Paris", "Lyon", "Paris", "Nice", "Paris", "")


class LoggingLLM(FakeLLM):
    """Answers depend on the prompt; each request is a line of the log before it is answered."""

    def __init__(self, log: Path | None = None, slow_s: float = 0.0) -> None:
        super().__init__()
        self._log = log
        self._slow_s = slow_s

    async def generate(self, request: GenerationRequest) -> Generation:
        text = last_user_text(request)
        if self._log is not None:
            with self._log.open("a") as log:
                log.write(f"{os.getpid()} {request.num_samples} {text}\n")
        await asyncio.sleep(self._slow_s)
        got = await super().generate(request)
        shift = int(text.split()[-1])
        drawn = [ANSWERS[(i * (1 + shift % 5) + shift) % len(ANSWERS)] for i in range(request.num_samples)]
        return replace(got, draws=tuple(Draw(text) for text in drawn))


def dev_rows(count: int, samples: Sequence[str] | None = None) -> list[DevRow]:
    kept = None if samples is None else tuple(samples)
    return [
        DevRow(i + 1, f"r{i}", ("Paris" if i % 3 else "Nice",), prompt=f"question {i}", samples=kept)
        for i in range(count)
    ]


@asynccontextmanager
async def replica(
    url: str,
    name: str,
    llm: LanguageModel,
    *,
    engine: JobEngine | None = None,
    slots: int = 2,
    setup: Setup | None = None,
    patience: Patience | None = None,
) -> AsyncIterator[Replica]:
    made = build_replica(
        url,
        replica_id=name,
        llm=llm,
        embedder=FakeEmbedder(32),
        serving=Serving(NUM_SAMPLES, Sampling(), Sampling()),
        setup=setup or Setup(),
        slots=slots,
        live=LiveLoad(),
        engine=engine,
        patience=patience,
        intervals=Intervals(active_poll_s=0.1, beat_s=0.2, lease_s=2.0, watch_s=0.05),
    )
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("log", type=Path)
    parser.add_argument("--slow", type=float, default=0.05)
    given = parser.parse_args()
    async with replica(given.url, given.name, LoggingLLM(given.log, given.slow)):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
