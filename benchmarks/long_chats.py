"""Cost of claim scores for chats of about 300 words on a real vLLM server, and whether they are in time.

    python -m benchmarks.long_chats [--embedder all-MiniLM-L6-v2] [--draws 3] [--seconds 420]

Alternating calls in one run: directly to the server, through `/v1` without a score, and with samples and
claim scores at the default deadline, streamed or not. All answers have the same number of tokens, which is
the maximum for the samples. No vector is cached between chats.
"""

import argparse
import asyncio
import json
import statistics
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx2 as httpx

from benchmarks.alternating import alternate, describe
from benchmarks.dropin import has_text, servers
from benchmarks.processes import UNCACHED

TOKENS = 360  # SmolLM2 writes five words in six tokens
TOPICS = [
    "the history of Rome", "healthy sleep", "the city of Paris", "learning the piano", "electric cars",
    "the planet Mars", "growing tomatoes", "the French Revolution", "how vaccines work", "saving money",
    "the life of Marie Curie", "training a dog", "the Amazon rainforest", "writing a novel", "solar power",
    "the game of chess",
]  # fmt: skip
BARE = "bare call"


@dataclass(frozen=True)
class Chat:
    """A scored chat. wait_ms: time from the last text of a stream to its score."""

    words: int
    uncertainty: dict[str, Any]
    wait_ms: float | None = None


async def call(
    http: httpx.AsyncClient, url: str, mode: str, own: dict[str, Any], chats: list[Chat], number: int
) -> None:
    """Ask for one answer, and append the chat to `chats`."""
    question = f"Write about 300 words on {TOPICS[number % len(TOPICS)]}."
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": question}],
        **{"temperature": 0.7, "max_tokens": TOKENS, "min_tokens": TOKENS},
        **own,
    }
    sent = http.build_request("POST", f"{url}/v1/chat/completions", json=body, headers={"X-Eigencal": mode})
    reply = await http.send(sent, stream=True)
    reply.raise_for_status()
    if "stream" in own:
        chats.append(await streamed(reply))
    else:
        answer = json.loads(await reply.aread())
        text = answer["choices"][0]["message"]["content"]
        chats.append(Chat(len(text.split()), answer.get("uncertainty", {})))


async def streamed(reply: httpx.Response) -> Chat:
    """Read a stream to its end."""
    text, last, scored, uncertainty = "", 0.0, 0.0, dict[str, Any]()
    async for line in reply.aiter_lines():
        if has_text(line):
            text += json.loads(line[6:])["choices"][0]["delta"]["content"]
            last = time.perf_counter()
        if '"uncertainty"' in line:
            uncertainty, scored = json.loads(line[6:])["uncertainty"], time.perf_counter()
    return Chat(len(text.split()), uncertainty, (scored - last) * 1000)


def is_late(chat: Chat) -> bool:
    """Return True if the answer arrived without its score."""
    return chat.uncertainty.get("status") == "pending"


def report(name: str, chats: list[Chat]) -> None:
    """Print how many scores were in time, and the time of their stages."""
    scores = [chat.uncertainty for chat in chats if chat.uncertainty["status"] == "scored"]
    print(f"\n{name}: {len(scores)} of {len(chats)} scores came with their answer")
    if not scores:
        return

    def median(values: list[float]) -> str:
        return f"{statistics.median(values):.0f} ({min(values):.0f} .. {max(values):.0f})"

    print(f"  words of an answer {median([chat.words for chat in chats])}")
    print(f"  tokens of the draws {median([score['usage']['completion_tokens'] for score in scores])}")
    print(f"  claims {median([len(score['claims']) for score in scores])}")
    for stage in ("queue", "generate", "embed", "spectrum"):
        print(f"  {stage} {median([score['timings_ms'][stage] for score in scores])} ms")
    waits = [chat.wait_ms for chat in chats if chat.wait_ms is not None]
    if waits:
        print(f"  from the last text to the score {median(waits)} ms", flush=True)


async def measure(llm: str, ours: str, draws: int, seconds: float) -> None:
    scored = {"eigencal": {"num_samples": draws, "claims": True}}
    ways: dict[str, dict[str, Any]] = {
        BARE: {},
        "`/v1`, `X-Eigencal: off`": {},
        "scored": scored,
        "scored, streamed": {**scored, "stream": True},
    }
    chats: dict[str, list[Chat]] = {name: [] for name in ways}
    async with httpx.AsyncClient(timeout=600) as http:
        calls = {
            name: partial(
                call,
                http,
                llm if name == BARE else ours,
                "on" if "eigencal" in own else "off",
                own,
                chats[name],
            )
            for name, own in ways.items()
        }
        rounds = await alternate(calls, callers=1, seconds=seconds)
        late = [chat.uncertainty for chats_ in chats.values() for chat in chats_ if is_late(chat)]
        for uncertainty in late:
            score = (await http.get(f"{ours}/scores/{uncertainty['id']}")).raise_for_status().json()
            print(f"late: {score.get('timings_ms')}")
    print(f"bare call {rounds.p50(BARE):.0f} ms; {describe(rounds)}")
    for name in list(ways)[1:]:
        print(f"  {name} over it: {rounds.ratio(name, BARE)}")
    for name, own in ways.items():
        if "eigencal" in own:
            report(name, chats[name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--embedder", default="all-MiniLM-L6-v2")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=420)
    options = parser.parse_args()
    print(f"{options.embedder}, {options.draws} draws")
    with servers(options.embedder, UNCACHED) as (llm, ours, _):
        asyncio.run(measure(llm, ours, options.draws, options.seconds))


if __name__ == "__main__":
    main()
