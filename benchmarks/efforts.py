"""What each effort costs a chat, on a real vLLM server: the whole call with its score, and its tokens.

    python -m benchmarks.efforts [--seconds 120]

In turn, in one run: straight to the server, the same with log-probabilities, through `/v1` without a score,
and with one by each effort. The answers are not streamed. All ways ask the same questions, for answers of
the same number of tokens, few and many. Tokens are those that the server generated: of the answer, and of the
draws beside it, which end where they end.
"""

import argparse
import asyncio
from collections import defaultdict
from functools import partial
from typing import Any

import httpx2 as httpx

from benchmarks.alternating import alternate, told
from benchmarks.dropin import QUESTIONS, servers

LENGTHS = (16, 128)  # tokens of an answer
BARE, UNSCORED = "bare call", "`/v1`, `X-Eigencal: off`"
WAYS: dict[str, dict[str, Any]] = {
    BARE: {},
    "bare call, with log-probabilities": {"logprobs": True},
    UNSCORED: {},
    **{f"`{effort}`": {"eigencal": {"effort": effort}} for effort in ("none", "low", "high")},
}
WITHOUT_DRAWS, WITH_DRAWS = list(WAYS)[1:4], list(WAYS)[4:]


async def call(
    http: httpx.AsyncClient, url: str, mode: str, body: dict[str, Any], tokens: list[int], number: int
) -> None:
    """Ask one question, and count the tokens generated for it."""
    question = f"{QUESTIONS[number % len(QUESTIONS)]} Answer in a word ({number})."
    sent = {"model": "m", "messages": [{"role": "user", "content": question}], "temperature": 0} | body
    answer = await http.post(f"{url}/v1/chat/completions", json=sent, headers={"X-Eigencal": mode})
    reply = answer.raise_for_status().json()
    beside = (reply.get("uncertainty") or {}).get("usage") or {}
    tokens.append(reply["usage"]["completion_tokens"] + beside.get("completion_tokens", 0))


async def measure(llm: str, ours: str, length: int, seconds: float) -> None:
    print(f"\n| answers of {length} tokens | whole call over the bare one | tokens generated over it |")
    print("|---|---|---|")
    for ways in (WITHOUT_DRAWS, WITH_DRAWS):
        tokens: dict[str, list[int]] = defaultdict(list)
        exactly = {"max_tokens": length, "min_tokens": length}
        async with httpx.AsyncClient(timeout=600) as http:
            calls = {}
            for name in (BARE, *ways):
                own = WAYS[name]
                url = ours if "eigencal" in own or name == UNSCORED else llm
                mode = "off" if name == UNSCORED else "on"
                calls[name] = partial(call, http, url, mode, own | exactly, tokens[name])
            found = await alternate(calls, callers=1, seconds=seconds)
        bare = sum(tokens[BARE]) / len(tokens[BARE])
        for name in ways:
            own_tokens = sum(tokens[name]) / len(tokens[name]) / bare
            print(f"| {name} | {found.ratio(name, BARE)} | {own_tokens:.2f} |", flush=True)
        print(f"(bare: {found.p50(BARE):.0f} ms; {told(found)})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="a part: a length, with draws or without")
    options = parser.parse_args()
    settings = {"EIGENCAL_MAX_TOKENS": str(max(LENGTHS)), "EIGENCAL_CHAT_DEADLINE_S": "60"}
    with servers("all-MiniLM-L6-v2", **settings) as (llm, ours, _):
        for length in LENGTHS:
            asyncio.run(measure(llm, ours, length, options.seconds))


if __name__ == "__main__":
    main()
