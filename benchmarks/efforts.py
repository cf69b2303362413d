"""What each effort costs a chat, on a real vLLM server: the whole call with its score, and its tokens.

    python -m benchmarks.efforts [--seconds 120]

In turn, in one run: straight to the server, then through `/v1` with `X-Eigencal: on` by each effort. The
answers are not streamed, and each question is asked once. Tokens are those that the server generated: of the
answer, and of the draws beside it.
"""

import argparse
import asyncio
import contextlib
import tempfile
from collections import defaultdict
from functools import partial
from pathlib import Path

import httpx

from benchmarks.alternating import alternate, told
from benchmarks.overhead import QUESTIONS
from benchmarks.processes import PYTHON, ROOT, free_port, running, wait_for
from service.llm.embedded import converted_model
from tests.support.vllm import ENVIRONMENT, serve_command

DIRECT, EFFORTS = "direct", ("none", "low", "high")
TOKENS = 48


async def call(http: httpx.AsyncClient, url: str, tokens: list[int], effort: str, number: int) -> None:
    """Ask one question, and count the tokens generated for it."""
    question = f"{QUESTIONS[number % len(QUESTIONS)]} ({effort}, {number})"
    body = {"model": "m", "messages": [{"role": "user", "content": question}], "max_tokens": TOKENS}
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
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        llm_port, port = free_port(), free_port()
        llm, ours = f"http://127.0.0.1:{llm_port}", f"http://127.0.0.1:{port}"
        serve = serve_command(str(converted_model(ROOT / "data" / "weights")), llm_port)
        vllm = stack.enter_context(running(serve, env=ENVIRONMENT, log=folder / "vllm.log"))
        wait_for(f"{llm}/health", vllm, 400)
        env = {
            "EIGENCAL_PORT": str(port),
            "EIGENCAL_LLM_BACKEND": "vllm",
            "EIGENCAL_LLM_URL": f"{llm}/v1",
            "EIGENCAL_MAX_TOKENS": str(TOKENS),
            "EIGENCAL_CHAT_DEADLINE_S": "60",
            "EIGENCAL_EMBEDDER": "all-MiniLM-L6-v2",
            "EIGENCAL_DATA_DIR": str(ROOT / "data"),
            "EIGENCAL_DATABASE_URL": f"sqlite:///{folder / 'eigencal.db'}",
        }
        service = stack.enter_context(running([PYTHON, "-m", "service"], env=env, log=folder / "service.log"))
        wait_for(f"{ours}/readyz", service, 300)
        asyncio.run(measure(llm, ours, options.seconds))


if __name__ == "__main__":
    main()
