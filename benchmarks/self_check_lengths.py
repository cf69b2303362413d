"""What a self-check costs by the length of the judged answer.

    python -m benchmarks.self_check_lengths --url http://127.0.0.1:8000

of a running service with a real LLM server. Answers of random words are judged without drawn answers, so that
nearly all of the time is the self-check's. Times are medians of `CALLS` calls in turn, and of `CALLERS` calls
at the same time; checks that are too late for their score are counted.
"""

import argparse
import asyncio
import random
import statistics
import time

import httpx2 as httpx

LENGTHS = (2, 20, 100, 400, 1000)  # words; a self-check shows the LLM at most 4,000 characters
CALLS, CALLERS = 4, 8
WORDS = ("river", "stone", "market", "winter", "garden", "silver", "bridge", "harbor", "candle", "forest")
RANDOM = random.Random()  # unseeded, because the service keeps replies to texts that it has checked


def text(num_words: int) -> str:
    return " ".join(RANDOM.choices(WORDS, k=num_words))


async def checked(http: httpx.AsyncClient, num_words: int) -> tuple[float, int]:
    """Return the seconds and the prompt tokens of a score; no tokens if its self-check was late."""
    answer = {"candidate": text(num_words), "candidate_logprob": -5.0 - num_words, "num_samples": 0}
    began = time.perf_counter()
    body = {"prompt": f"What do the old notes say about {text(4)}?", **answer, "self_check": True}
    score = (await http.post("/score", json=body)).raise_for_status().json()
    return time.perf_counter() - began, (score["usage"] or {}).get("prompt_tokens", 0)


async def main(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=600) as http:
        await checked(http, LENGTHS[0])
        shortest = 0.0
        for num_words in LENGTHS:
            in_turn = [await checked(http, num_words) for _ in range(CALLS)]
            at_once = await asyncio.gather(*(checked(http, num_words) for _ in range(CALLERS)))
            one, eight = (statistics.median(took for took, _ in calls) for calls in (in_turn, at_once))
            shortest = shortest or one
            print(
                f"{num_words} words: {in_turn[0][1]} tokens; over the shortest, 1 caller ({shortest:.2f} s): "
                f"1 caller {one / shortest:.1f}, {CALLERS} callers {eight / shortest:.1f}, "
                f"{sum(not tokens for _, tokens in at_once)} of them late",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", required=True)
    asyncio.run(main(parser.parse_args().url))
