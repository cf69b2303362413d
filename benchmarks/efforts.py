"""What each effort costs a chat, on a real vLLM server: the whole call with its score, and its tokens.

    python -m benchmarks.efforts [--seconds 120]

In turn, in one run: straight to the server, then through `/v1` with `X-Eigencal: on` by each effort. The
answers are not streamed. All ways ask the same questions, greedily, so that their answers are equally long.
Tokens are those that the server generated: of the
answer, and of the draws beside it.
"""

import argparse
import asyncio
from collections import defaultdict
from functools import partial

import httpx

from benchmarks.alternating import alternate, told
from benchmarks.dropin import servers
from benchmarks.overhead import QUESTIONS

DIRECT, EFFORTS = "direct", ("none", "low", "high")
TOKENS = 128


async def call(http: httpx.AsyncClient, url: str, tokens: list[int], effort: str, number: int) -> None:
    """Ask one question, and count the tokens generated for it."""
    question = f"{QUESTIONS[number % len(QUESTIONS)]} Answer in a word ({number})."
    body = {"model": "m", "messages": [{"role": "user", "content": question}], "max_tokens": TOKENS}
    body |= {"temperature": 0}
    if effort != DIRECT:
        body["eigencal"] = {"effort": effort}
    reply = (await http.post(f"{url}/v1/chat/completions", json=body)).raise_for_status().json()
    beside = (reply.get("uncertainty") or {}).get("usage") or {}
    tokens.append(reply["usage"]["completion_tokens"] + beside.get("completion_tokens", 0))


async def measure(llm: str, ours: str, seconds: float) -> None:
    tokens: dict[str, list[int]] = defaultdict(list)
    async with httpx.AsyncClient(timeout=600) as http:
        urls = {DIRECT: llm, **dict.fromkeys(EFFORTS, ours)}
        calls = {name: partial(call, http, url, tokens[name], name) for name, url in urls.items()}
        found = await alternate(calls, callers=1, seconds=seconds)
    print(told(found))
    print("| effort | whole call over the bare one | tokens generated over it |")
    print("|---|---|---|")
    bare = sum(tokens[DIRECT]) / len(tokens[DIRECT])
    for name in EFFORTS:
        own = sum(tokens[name]) / len(tokens[name]) / bare
        print(f"| `{name}` | {found.ratio(name, DIRECT)} | {own:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    options = parser.parse_args()
    settings = {"EIGENCAL_MAX_TOKENS": str(TOKENS), "EIGENCAL_CHAT_DEADLINE_S": "60"}
    with servers("all-MiniLM-L6-v2", **settings) as (llm, ours, _):
        asyncio.run(measure(llm, ours, options.seconds))


if __name__ == "__main__":
    main()
