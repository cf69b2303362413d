"""What /score adds to the n = 20 request that it rests on, against one real vLLM server.

In turn, in one run: the request straight to the server, and /score with the same prompt, settings and server.
The figure is the ratio of the total times over the same prompts, with 1 and 8 callers. Answers differ in
length from draw to draw, so rounds are many and their order alternates.
"""

import argparse
import asyncio
import statistics
import time
from pathlib import Path

import httpx

from benchmarks.processes import PYTHON, ROOT, free_port, running, wait_for
from service.adapters.embedded_llm.gguf import converted_model
from service.adapters.llm.prompting import FEW_SHOT

QUESTIONS = [
    "What is the capital of Spain?", "Who painted the Mona Lisa?", "Which planet is the largest?",
    "What is the longest river in Africa?", "Who discovered penicillin?", "In which year did Rome fall?",
    "Which metal is liquid at room temperature?", "Who wrote Don Quixote?", "What is the sign of gold?",
    "Which country has the most people?", "Who composed The Four Seasons?", "What is the tallest mountain?",
    "Which ocean is the deepest?", "Who was the first man on the moon?", "What do pandas eat?",
    "Which language is spoken in Brazil?",
]  # fmt: skip
SAMPLING = {"temperature": 0.5, "top_p": 1.0, "max_tokens": 32, "stop": ["\n"]}


async def direct(http: httpx.AsyncClient, base: str, question: str) -> None:
    body = {"model": "m", "prompt": f"{FEW_SHOT}Q: {question}\nA:", "n": 20, **SAMPLING}
    (await http.post(f"{base}/v1/completions", json=body)).raise_for_status()


async def scored(http: httpx.AsyncClient, base: str, question: str) -> None:
    body = {"prompt": question, "num_samples": 20, "sampling": SAMPLING}
    (await http.post(f"{base}/score", json=body)).raise_for_status()


async def timed(call, http: httpx.AsyncClient, base: str, callers: int) -> float:
    """Return the seconds that all questions take, asked by so many callers at once."""
    queue = iter(QUESTIONS)

    async def caller() -> None:
        for question in queue:
            await call(http, base, question)

    start = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return time.perf_counter() - start


async def compare(llm: str, ours: str, callers: int, rounds: int) -> None:
    async with httpx.AsyncClient(timeout=600) as http:
        await timed(direct, http, llm, callers)
        await timed(scored, http, ours, callers)
        ratios, times = [], {direct: 0.0, scored: 0.0}
        for i in range(rounds):
            pair = {}
            for call in (direct, scored) if i % 2 else (scored, direct):
                pair[call] = await timed(call, http, llm if call is direct else ours, callers)
                times[call] += pair[call]
            ratios.append(pair[scored] / pair[direct])
    total = times[scored] / times[direct]
    print(
        f"{callers} caller(s): /score over direct {total:.3f} in total, by round median"
        f" {statistics.median(ratios):.3f} ({min(ratios):.3f} .. {max(ratios):.3f}, {rounds} rounds);"
        f" direct {times[direct] / rounds / len(QUESTIONS) * 1000:.0f} ms a question",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--embedder", action="append", help="may be given twice")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    llm_port, log = free_port(), Path("data") / "bench-vllm.log"
    model = converted_model(ROOT / "data" / "weights")
    serve = [PYTHON, "-m", "service", "vllm-serve", str(model), "--served-name", "m", "--port", str(llm_port)]
    with running(serve, log=log) as vllm:
        llm = f"http://127.0.0.1:{llm_port}"
        wait_for(f"{llm}/health", vllm, 300)
        for embedder in options.embedder or ["all-MiniLM-L6-v2", "all-mpnet-base-v2"]:
            port = free_port()
            env = {
                "EIGENCAL_LLM_BACKEND": "vllm", "EIGENCAL_LLM_URL": f"{llm}/v1",
                "EIGENCAL_LLM_API": "completions",
                "EIGENCAL_FEW_SHOT": FEW_SHOT, "EIGENCAL_EMBEDDER": embedder, "EIGENCAL_PORT": str(port),
                "EIGENCAL_EMBEDDER_CACHE": "0",  # the questions come again and again: no vector may be kept
            }  # fmt: skip
            with running([PYTHON, "-m", "service"], env=env, log=Path("data") / "bench-service.log") as ours:
                wait_for(f"http://127.0.0.1:{port}/readyz", ours, 120)
                print(f"embedder {embedder}, no vectors kept")
                for callers in (1, 8):
                    asyncio.run(compare(llm, f"http://127.0.0.1:{port}", callers, options.rounds))


if __name__ == "__main__":
    main()
