"""Time to the first token of a stream through the drop-in, on a real vLLM server.

Alternating calls in one run: directly to the server, through `/v1` with `X-Eigencal: off`, with `on` (1
caller only, because with 16 the samples of some delay the others), and through a LiteLLM proxy if `--litellm`
names its command. Each stream is read to its end before the next begins. p50 and p99 with 1 and 16 callers.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx2 as httpx

from benchmarks.alternating import Rounds, describe
from benchmarks.processes import PYTHON, ROOT, free_port, running, wait_for
from demo.model import converted_model
from tests.support.vllm import ENVIRONMENT, serve_command

QUESTIONS = [
    "What is the capital of Spain?", "Who painted the Mona Lisa?", "Which planet is the largest?",
    "What is the longest river in Africa?", "Who discovered penicillin?", "In which year did Rome fall?",
    "Which metal is liquid at room temperature?", "Who wrote Don Quixote?", "What is the sign of gold?",
    "Which country has the most people?", "Who composed The Four Seasons?", "What is the tallest mountain?",
    "Which ocean is the deepest?", "Who was the first man on the moon?", "What do pandas eat?",
    "Which language is spoken in Brazil?",
]  # fmt: skip
DIRECT, OFF, ON, LITELLM = "direct", "/v1 off", "/v1 on", "LiteLLM proxy"
KEY = "sk-benchmark"
TOKENS = 8
PROXY = """\
model_list:
  - model_name: m
    litellm_params: {{model: hosted_vllm/m, api_base: "{url}/v1", api_key: none}}
general_settings: {{master_key: {key}}}
"""


@dataclass(frozen=True)
class Way:
    """A route to the server."""

    url: str
    mode: str = ""


async def first_token_ms(http: httpx.AsyncClient, way: Way, number: int) -> float:
    """Read a whole stream; return the milliseconds to its first text."""
    question = f"{QUESTIONS[number % len(QUESTIONS)]} ({number})"
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": question}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "stream": True,
    }
    headers = {"X-Eigencal": way.mode, "Authorization": f"Bearer {KEY}"}
    start, first = time.perf_counter(), None
    async with http.stream("POST", f"{way.url}/v1/chat/completions", json=body, headers=headers) as reply:
        if reply.status_code != httpx.codes.OK:
            raise RuntimeError(f"{reply.status_code}: {(await reply.aread())[:300]!r}")
        async for line in reply.aiter_lines():
            if first is None and has_text(line):
                first = (time.perf_counter() - start) * 1000
    if first is None:
        raise RuntimeError("a stream without a text")
    return first


def has_text(line: str) -> bool:
    """Return True if a line of a stream contains text."""
    if not line.startswith("data: {"):
        return False
    choices = json.loads(line[6:])["choices"]
    return bool(choices and choices[0]["delta"].get("content"))


async def compare(ways: Mapping[str, Way], callers: int, requests: int) -> Rounds:
    """Call each route in turn with `callers` at once. The first round is not counted."""
    rounds, names = Rounds(callers, {name: [] for name in ways}), list(ways)
    # Below uvicorn's keep-alive of 5 s: connections may get this old while other routes are measured.
    limits = httpx.Limits(max_connections=None, keepalive_expiry=2)
    async with httpx.AsyncClient(timeout=600, limits=limits) as http:
        for number in range(-1, -(-requests // callers)):
            for i in range(len(names)):
                name = names[(i + number) % len(names)]
                # Each route has its own questions, so that the server's prompt cache does not help.
                first = ((number + 1) * len(names) + i) * callers
                calls = (first_token_ms(http, ways[name], first + j) for j in range(callers))
                try:
                    block = await asyncio.gather(*calls)
                except httpx.HTTPError as error:
                    raise RuntimeError(f"{name}: {error!r}") from error
                if number >= 0:
                    rounds.ms[name].append(list(block))
    return rounds


def shown(rounds: Rounds) -> str:
    """Return the figures of each route, and its ratio to the direct one."""
    lines = [describe(rounds)]
    for name, blocks in rounds.ms.items():
        latencies = [latency for block in blocks for latency in block]
        p99 = statistics.quantiles(latencies, n=100)[98]
        lines.append(
            f"  {name:14} p50 {statistics.median(latencies):7.1f} ms  p99 {p99:7.1f} ms  n {len(latencies)}"
        )
    for name in list(rounds.ms)[1:]:
        lines.append(f"  {name} over {DIRECT}: {rounds.ratio(name, DIRECT)}")
    return "\n".join(lines)


@contextlib.contextmanager
def proxy(command: str, llm: str, folder: Path) -> Iterator[str]:
    """Run a LiteLLM proxy in front of the server; yield its address."""
    config, port = folder / "litellm.yaml", free_port()
    config.write_text(PROXY.format(url=llm, key=KEY))
    arguments = [command, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    with running(arguments, log=folder / "litellm.log") as process:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/health/liveliness", process, 300)
        yield url


@contextlib.contextmanager
def servers(embedder: str, module: str = "service", **settings: str) -> Iterator[tuple[str, str, Path]]:
    """Run a vLLM server and the service in front of it; yield their addresses and a temporary folder."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        llm_port = free_port()
        llm = f"http://127.0.0.1:{llm_port}"
        serve = serve_command(str(converted_model(ROOT / "data" / "weights")), llm_port)
        vllm = stack.enter_context(running(serve, env=ENVIRONMENT, log=folder / "vllm.log"))
        wait_for(f"{llm}/health", vllm, 400)
        ours = stack.enter_context(service_before(llm, embedder, folder, module, **settings))
        yield llm, ours, folder


@contextlib.contextmanager
def service_before(
    llm: str, embedder: str, folder: Path, module: str = "service", **settings: str
) -> Iterator[str]:
    """Run the service in front of an LLM server; yield its address."""
    port = free_port()
    env = {
        "EIGENCAL_PORT": str(port),
        "EIGENCAL_LLM_URL": f"{llm}/v1",
        "EIGENCAL_EMBEDDER": str(ROOT / "data" / "weights" / embedder),
        "EIGENCAL_DATABASE_URL": f"sqlite:///{folder / f'{port}.db'}",
        **settings,
    }
    with running([PYTHON, "-m", module], env=env, log=folder / f"{port}.log") as service:
        wait_for(f"http://127.0.0.1:{port}/readyz", service, 300)
        yield f"http://127.0.0.1:{port}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--embedder", default="all-MiniLM-L6-v2")
    parser.add_argument("--requests", type=int, default=500, help="by each route, with 1 caller and with 16")
    parser.add_argument("--on-requests", type=int, default=60, help="of `on`, with 1 caller; 0: none")
    parser.add_argument("--callers", type=int, nargs="*", default=[1, 16])
    parser.add_argument("--draws", default="3", help="of `on`")
    parser.add_argument("--litellm", help="the command of a LiteLLM proxy")
    options = parser.parse_args()
    settings = {"EIGENCAL_MAX_TOKENS": "16", "EIGENCAL_CHAT_NUM_SAMPLES": options.draws}
    with contextlib.ExitStack() as stack:
        llm, ours, folder = stack.enter_context(servers(options.embedder, **settings))
        ways = {DIRECT: Way(llm), OFF: Way(ours, "off")}
        if options.litellm:
            ways[LITELLM] = Way(stack.enter_context(proxy(options.litellm, llm, folder)))
        waiting = {DIRECT: Way(llm), ON: Way(ours, "on")}
        if options.on_requests:
            print(shown(asyncio.run(compare(waiting, 1, options.on_requests))), flush=True)
        for callers in options.callers:
            print(shown(asyncio.run(compare(ways, callers, options.requests))), flush=True)


if __name__ == "__main__":
    main()
