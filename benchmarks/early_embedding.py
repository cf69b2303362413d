"""Answers embedded as they finish against after the last, and streams against plain requests.

First on a server whose 20 distinct answers end one by one over a second, then on a real vLLM server, where a
stream costs a chunk for every few tokens. Calls alternate in one run; medians with 1 and 8 callers.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import uvicorn

from benchmarks.alternating import Call, alternate, told
from benchmarks.processes import PYTHON, ROOT, free_port, running, wait_for
from service.app import create_app
from service.embedding.local import SentenceTransformerEmbedder
from service.llm.embedded import converted_model
from service.settings import Settings

CALLERS = (1, 8)
EMBEDDERS = ["all-MiniLM-L6-v2", "all-mpnet-base-v2"]
WEIGHTS = ROOT / "data" / "weights"
# Answers that are nearly all distinct, of lengths from a few tokens to the most: the usual case of a chat.
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 32, "stop": ["\n", "."]}
SUBJECTS = ("the sea", "a letter", "winter", "an old house", "bread", "a bridge", "the moon", "a garden")
WITH_A_DEADLINE = {"deadline_ms": 300_000}  # answers are streamed, and there is time for all of them
BARE, BARE_STREAM = "bare, plain", "bare, streamed"
PLAIN, STREAMED, EARLY = "plain, after the last", "streamed, after the last", "streamed, as they finish"


class AfterTheLast(SentenceTransformerEmbedder):
    """An embedder that does nothing ahead."""

    async def embed_ahead(self, texts: Sequence[str]) -> None:
        """Do nothing."""


def serve(port: int, *, early: bool) -> None:
    """Serve the service on the port, with or without embedding early; the rest is set in the environment."""
    settings = Settings()
    make = SentenceTransformerEmbedder if early else AfterTheLast
    threads = settings.embedder_threads
    app = create_app(settings, embedder=make(settings.embedder, cache_dir=WEIGHTS, threads=threads))
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


@contextmanager
def service(llm: str, embedder: str, *, early: bool, api: str) -> Iterator[str]:
    """Run a service; yield its address."""
    port = free_port()
    with TemporaryDirectory() as folder:
        env = {
            "EIGENCAL_LLM_BACKEND": "vllm", "EIGENCAL_LLM_URL": f"{llm}/v1", "EIGENCAL_LLM_API": api,
            "EIGENCAL_EMBEDDER": embedder, "EIGENCAL_DATA_DIR": folder, "EIGENCAL_EMBED_EARLY": str(early),
            # One: threads that wait for each other while others use the cores take many times as long.
            "EIGENCAL_EMBEDDER_THREADS": "1",
        }  # fmt: skip
        command = [PYTHON, "-m", "benchmarks.early_embedding", "--serve", str(port)]
        log = Path("data") / f"bench-early-{early}.log"
        with running([*command, *(["--early"] if early else [])], env=env, log=log) as process:
            wait_for(f"http://127.0.0.1:{port}/readyz", process, 120)
            yield f"http://127.0.0.1:{port}"


def prompt(number: int) -> str:
    """Return what a round asks."""
    return f"Write one sentence about {SUBJECTS[number % len(SUBJECTS)]}.\n"


def scoring(http: httpx.AsyncClient, url: str, **more: Any) -> Call:
    """Return a call of POST /score there."""

    async def call(number: int) -> None:
        body = {"prompt": prompt(number), "num_samples": 20, "sampling": SAMPLING, **more}
        (await http.post(f"{url}/score", json=body)).raise_for_status()

    return call


def bare(http: httpx.AsyncClient, llm: str, *, stream: bool) -> Call:
    """Return the request that a score makes, straight to the server."""

    async def call(number: int) -> None:
        body = {"model": "m", "prompt": prompt(number), "n": 20, "logprobs": 0, "stream": stream, **SAMPLING}
        async with http.stream("POST", f"{llm}/v1/completions", json=body) as response:
            response.raise_for_status()
            async for _ in response.aiter_raw():
                pass

    return call


async def compare(after: str, early: str, callers: int, seconds: float, vllm: str | None = None) -> None:
    """Print the medians of all calls and what is saved."""
    async with httpx.AsyncClient(timeout=600) as http:
        calls = {
            PLAIN: scoring(http, after),
            STREAMED: scoring(http, after, **WITH_A_DEADLINE),
            EARLY: scoring(http, early),
        }
        if vllm is not None:
            calls |= {name: bare(http, vllm, stream=name == BARE_STREAM) for name in (BARE, BARE_STREAM)}
        found = await alternate(calls, callers=callers, seconds=seconds)
    print(told(found))
    pairs = [(STREAMED, PLAIN), (EARLY, STREAMED), (EARLY, PLAIN)]
    for name, base in [*pairs, *([(BARE_STREAM, BARE)] if vllm else [])]:
        print(
            f"  {name} over {base}: {found.ratio(name, base)}, {found.p50(name):.0f} against"
            f" {found.p50(base):.0f} ms, saved {found.saved(name, base)}",
            flush=True,
        )


def compared(llm: str, api: str, embedders: Sequence[str], seconds: float, vllm: str | None = None) -> None:
    """Compare with each embedder, for 1 and 8 callers."""
    for embedder in embedders:
        with (
            service(llm, embedder, early=False, api=api) as after,
            service(llm, embedder, early=True, api=api) as early,
        ):
            print(f"embedder {embedder}")
            for callers in CALLERS:
                asyncio.run(compare(after, early, callers, seconds, vllm))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--embedder", action="append", help="may be given twice")
    parser.add_argument("--seconds", type=float, default=40, help="for each embedder and number of callers")
    parser.add_argument("--server", choices=["spread", "vllm", "both"], default="both")
    parser.add_argument("--serve", type=int, help="serve on this port, to be measured (--early: with it)")
    parser.add_argument("--early", action="store_true")
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve, early=options.early)
    embedders = options.embedder or EMBEDDERS
    if options.server != "vllm":
        port = free_port()
        with running([PYTHON, "-m", "benchmarks.spread_server", str(port)]) as server:
            wait_for(f"http://127.0.0.1:{port}/health", server, 60)
            print("20 answers that end one by one over a second")
            compared(f"http://127.0.0.1:{port}", "chat", embedders, options.seconds)
    if options.server != "spread":
        port, model = free_port(), converted_model(WEIGHTS)
        command = [
            PYTHON,
            "-m",
            "service",
            "vllm-serve",
            str(model),
            "--served-name",
            "m",
            "--port",
            str(port),
        ]
        with running(command, log=Path("data") / "bench-vllm-early.log") as server:
            llm = f"http://127.0.0.1:{port}"
            wait_for(f"{llm}/health", server, 300)
            print("a real vLLM server on the same cores")
            compared(llm, "completions", embedders, 2 * options.seconds, llm)
    return None


if __name__ == "__main__":
    sys.exit(main())
