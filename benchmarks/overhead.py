"""Latency of /score and of log-probabilities relative to the bare n = 20 request, on a real vLLM.

Alternating calls in one run: the request to the server without and with log-probabilities, and /score with
the same prompt, settings and server, which requests log-probabilities. Ratios of median latencies with 1 and
8 callers. `--samples`: number of samples instead of 20. `--beside EIGENCAL_KERNEL=paper`: also /score of a
second service with this setting, such as `EIGENCAL_COMPARE=llm`. `--url`: a running LLM server. Tokens are
means per score, as the server counts them. `--chats`: scored chats in place of /score.
"""

import argparse
import asyncio
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2 as httpx

from benchmarks.alternating import alternate, describe
from benchmarks.dropin import QUESTIONS, servers, service_before
from benchmarks.processes import UNCACHED
from demo.data import PROMPT_TEMPLATE

SAMPLING = {"temperature": 0.5, "top_p": 1.0, "max_tokens": 32, "stop": ["\n"]}
# Completions API: the log-probability of each sampled token, without alternatives.
WITH_LOGPROBS = {"logprobs": 0}
BARE, LOGPROBS, SCORE = "the bare call", "the bare call with log-probabilities", "/score"


async def compare(
    llm: str, ours: dict[str, str], samples: int, callers: int, seconds: float, *, chats: bool
) -> None:
    tokens: dict[str, list[tuple[int, int]]] = {name: [] for name in ours}
    async with httpx.AsyncClient(timeout=600) as http:

        async def direct(number: int, extra: dict[str, int]) -> None:
            prompt = PROMPT_TEMPLATE.replace("{prompt}", QUESTIONS[number % len(QUESTIONS)])
            body = {"model": "m", "prompt": prompt, "n": samples, **SAMPLING, **extra}
            (await http.post(f"{llm}/v1/completions", json=body)).raise_for_status()

        async def scored(name: str, url: str, number: int) -> None:
            question, path = QUESTIONS[number % len(QUESTIONS)], "/score"
            body: dict[str, Any] = {"prompt": question, "num_samples": samples, "sampling": SAMPLING}
            if chats:
                turns, path = [{"role": "user", "content": question}], "/v1/chat/completions"
                body = {
                    "model": "m",
                    "messages": turns,
                    "eigencal": {"num_samples": samples},
                    "max_tokens": 32,
                }
            answer = (await http.post(f"{url}{path}", json=body)).raise_for_status().json()
            score = answer["uncertainty"] if chats else answer
            if score.get("evidence") is None:
                raise RuntimeError("the score failed, or the server returned no log-probabilities")
            tokens[name].append((score["usage"]["prompt_tokens"], score["usage"]["completion_tokens"]))

        calls = {BARE: lambda i: direct(i, {}), LOGPROBS: lambda i: direct(i, WITH_LOGPROBS)}
        calls |= {name: partial(scored, name, url) for name, url in ours.items()}
        rounds = await alternate(calls, callers=callers, seconds=seconds)
    print(f"{describe(rounds)}; {BARE} {rounds.p50(BARE):.0f} ms")
    others = [(SCORE, name) for name in ours if name != SCORE]
    for name, base in ((LOGPROBS, BARE), (SCORE, LOGPROBS), (SCORE, BARE), *others):
        print(f"  {name} over {base}: {rounds.ratio(name, base)}", flush=True)
    for name, counts in tokens.items():
        prompt, completion = (sum(column) / len(counts) for column in zip(*counts, strict=True))
        print(f"  {name}: {prompt:.0f} prompt tokens, {completion:.1f} completion tokens", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--embedder", default="all-mpnet-base-v2")
    parser.add_argument("--seconds", type=float, default=70, help="with 1 caller; twice as long with 8")
    parser.add_argument("--samples", type=int, default=20, help="answers drawn")
    parser.add_argument("--beside", help="NAME=VALUE, a setting of a second service")
    parser.add_argument("--chats", action="store_true", help="scored chats in place of /score")
    parser.add_argument("--url", help="of a running LLM server, instead of SmolLM2 on vLLM")
    options = parser.parse_args()
    settings = {"EIGENCAL_LLM_API": "completions", "EIGENCAL_PROMPT_TEMPLATE": PROMPT_TEMPLATE}
    # The questions repeat, so vectors must not be cached.
    with ExitStack() as stack:
        if options.url:
            llm, folder = options.url, Path(stack.enter_context(TemporaryDirectory()))
            before = service_before(llm, options.embedder, folder, UNCACHED, **settings)
            ours = stack.enter_context(before)
        else:
            ready = servers(options.embedder, UNCACHED, **settings)
            llm, ours, folder = stack.enter_context(ready)
        services = {SCORE: ours}
        if options.beside:
            name, _, value = options.beside.partition("=")
            other = service_before(llm, options.embedder, folder, UNCACHED, **settings | {name: value})
            services[f"/score with {options.beside}"] = stack.enter_context(other)
        for callers, seconds in ((1, options.seconds), (8, 2 * options.seconds)):
            asyncio.run(compare(llm, services, options.samples, callers, seconds, chats=options.chats))


if __name__ == "__main__":
    main()
