"""Answers of an LLM on vLLM, recorded as the files of ../shared/data are: what the benchmarks judge.

    python -m benchmarks.record WEIGHTS NAME [--sets triviaqa nq sentences] [--rows 150] [--draws 20]

WEIGHTS: the folder of an instruction-tuned LLM; NAME: what its files in .cache are called. Needs
../shared/data and `make .venv-vllm/.installed`. Short answers to the development questions are drawn after
four examples, at a temperature of .5. `sentences` are chats that ask for one short sentence, to test
questions, at .7. Each row has one more answer, at a temperature of 0, which is judged. Rows are stored at
once: a second call continues.
"""

import argparse
import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2 as httpx

from benchmarks.processes import free_port, running, wait_for
from benchmarks.recorded_evidence import DATA, RECORDED
from tests.support.vllm import ENVIRONMENT, serve_command

EXAMPLES = (
    ("Which planet is closest to the sun?", "Mercury"),
    ("Who painted the Mona Lisa?", "Leonardo da Vinci"),
    ("In which year did the Berlin Wall fall?", "1989"),
    ("What is the chemical symbol of gold?", "Au"),
)
SHORT = {"triviaqa": "triviaqa_dev", "nq": "nq_dev"}
SENTENCES = slice(240, 400)  # rows of the test file without recorded short answers
ONE_SENTENCE = "{question}\nAnswer in one short full sentence."
AT_ONCE = 10
Row = dict[str, Any]


def asked(name: str, count: int) -> Iterator[tuple[str, list[str]]]:
    """Yield each question of a set and its right answers."""
    name, of_file = ("triviaqa_test", SENTENCES) if name == "sentences" else (SHORT[name], slice(None))
    for line in (DATA / f"{name}.jsonl").read_text("utf-8").splitlines()[of_file][:count]:
        row = json.loads(line)
        yield row["prompt"], [row["reference"]]


def few_shot(question: str) -> str:
    """Return a completion's prompt."""
    return "".join(f"Question: {q}\nAnswer: {a}\n\n" for q, a in EXAMPLES) + f"Question: {question}\nAnswer:"


class Recorder:
    """Draws answers from one server."""

    def __init__(self, http: httpx.AsyncClient, draws: int) -> None:
        self._http, self._draws = http, draws
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def row(self, name: str, question: str, references: Sequence[str]) -> Row:
        draw = self._completions if name in SHORT else self._chats
        prompt = ONE_SENTENCE.format(question=question) if name == "sentences" else question
        async with self._at_once:
            drawn, [best] = await draw(prompt, self._draws), await draw(prompt, 1)
        return {
            **{"prompt": question, "reference": references, "answer": best[0], "answer_logprob": best[1]},
            **{"samples": [text for text, _ in drawn], "logprob": [total for _, total in drawn]},
        }

    async def _completions(self, question: str, count: int) -> list[tuple[str, float]]:
        body = {"prompt": few_shot(question), "stop": ["\n"], "max_tokens": 16, "logprobs": 0}
        found = list[tuple[str, float]]()
        for choice in await self._post("completions", body | sampling(count, 0.5)):
            found.append((choice["text"].strip(), sum(choice["logprobs"]["token_logprobs"])))
        return found

    async def _chats(self, question: str, count: int) -> list[tuple[str, float]]:
        body = {"messages": [{"role": "user", "content": question}], "max_tokens": 60, "logprobs": True}
        found = list[tuple[str, float]]()
        for choice in await self._post("chat/completions", body | sampling(count, 0.7)):
            tokens = choice["logprobs"]["content"]
            found.append((choice["message"]["content"].strip(), sum(token["logprob"] for token in tokens)))
        return found

    async def _post(self, path: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        reply = await self._http.post(path, json={"model": "m", **body})
        choices: list[dict[str, Any]] = reply.raise_for_status().json()["choices"]
        return choices


def sampling(count: int, temperature: float) -> dict[str, Any]:
    """Return n and temperature: 0 for one answer."""
    return {"n": count, "temperature": temperature if count > 1 else 0}


async def record(url: str, sets: Sequence[str], name: str, count: int, draws: int) -> None:
    """Draw the rows that are not yet kept, and keep them in order."""
    RECORDED.mkdir(parents=True, exist_ok=True)
    async with httpx.AsyncClient(base_url=f"{url}/v1/", timeout=1200) as http:
        recorder = Recorder(http, draws)
        for each in sets:
            path = RECORDED / f"{each}_{name}_m{draws}.jsonl"
            kept = len(path.read_text("utf-8").splitlines()) if path.exists() else 0
            rows = [asyncio.ensure_future(recorder.row(each, *one)) for one in [*asked(each, count)][kept:]]
            for row in rows:
                found = json.dumps(await row, ensure_ascii=False)
                with path.open("a", encoding="utf-8") as file:
                    file.write(found + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("name")
    parser.add_argument("--sets", nargs="+", choices=(*SHORT, "sentences"), default=tuple(SHORT))
    parser.add_argument("--rows", type=int, default=150, help="of each set of short answers")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--url", help="of a server that runs, instead of starting one: http://127.0.0.1:8000")
    options = parser.parse_args()
    if options.url:
        asyncio.run(record(options.url, options.sets, options.name, options.rows, options.draws))
        return
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with running(serve_command(options.weights.absolute(), port), env=ENVIRONMENT) as process:
        wait_for(f"{url}/health", process, 600)
        asyncio.run(record(url, options.sets, options.name, options.rows, options.draws))


if __name__ == "__main__":
    main()
