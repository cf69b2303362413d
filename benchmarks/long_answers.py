"""Long answers of a real LLM, scored claim by claim: sixty questions with facts that a rule checks.

    python -m benchmarks.long_answers [--embedder all-mpnet-base-v2] [--answers 11] [--uqlm]
        [--judged 11] [--draws 3 5 10]

The LLM (SmolLM2-135M, or the weights in `--weights FOLDER` by vLLM) answers each question several times
(temperature .7, 160 tokens). Answers are kept in .cache; `--again` samples new ones. Each sentence with a
verdict by the rules of `benchmarks.long_questions` is judged by m of the other answers. Intervals are
bootstraps over questions; differences are paired. The last table of each m has only the questions that no
choice was based on. Log-probabilities are vLLM's. `--uqlm`: also UQLM's own code (needs
`make .venv-rivals/.installed`). `--judged`: judge only the first answers to each
question.
"""

import argparse
import asyncio
import json
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np

from benchmarks.claims import Figure, head
from benchmarks.long_questions import FIRST, Question, questions
from benchmarks.processes import ROOT, free_port, running, wait_for
from benchmarks.recorded_evidence import WEIGHTS, embedded
from benchmarks.rivals import VENV
from demo.model import converted_model
from lab.vectors import spectrum
from service.claims.kernel import compared_texts
from service.claims.matching import Matcher
from service.claims.segments import Segment, claims
from service.scoring.claims import Outcomes, claim_logprobs, outcomes_of
from service.spectral.reliability import auroc, resampled_aurocs
from service.spectral.resampling import ResampleCounts
from service.spectral.spectrum import Spectrum, born_probability, serve
from tests.support.vllm import ENVIRONMENT, serve_command

TEMPERATURE, MAX_TOKENS, SIZES, RESAMPLES = 0.7, 160, (3, 5, 10), 1000
Floats = np.ndarray
Answers = dict[str, Any]  # the answers to a question in the format of the cache


@dataclass(frozen=True)
class Drawn:
    """The answers to a question: texts, and the tokens of each with their log-probabilities, if known."""

    question: Question
    answers: list[str]
    tokens: list[list[tuple[str, float]]]


async def drawn_by_vllm(url: str, count: int, questions_: Sequence[Question]) -> AsyncIterator[Answers]:
    async with httpx.AsyncClient(timeout=600) as http:
        for question in questions_:
            body = {
                "model": "m",
                "messages": [{"role": "user", "content": question.text}],
                **{"n": count, "temperature": TEMPERATURE, "max_tokens": MAX_TOKENS, "logprobs": True},
            }
            reply = (await http.post(f"{url}/v1/chat/completions", json=body)).raise_for_status().json()
            choices = reply["choices"]
            tokens = [[(t["token"], t["logprob"]) for t in c["logprobs"]["content"]] for c in choices]
            yield {"answers": [c["message"]["content"] for c in choices], "tokens": tokens}


async def kept_as_drawn(drawn: AsyncIterator[Answers], rows: list[Answers], kept: Path) -> None:
    kept.parent.mkdir(exist_ok=True)
    async for row in drawn:
        rows.append(row)
        kept.write_text(json.dumps(rows))


def draw(count: int, kept: Path, weights: Path | None, *, again: bool) -> list[Drawn]:
    """Return the cached answers, and sample answers to the other questions."""
    rows: list[Answers] = [] if again or not kept.exists() else json.loads(kept.read_text())
    missing = questions()[len(rows) :]
    if missing:
        port = free_port()
        command, url = serve_command(weights or converted_model(WEIGHTS), port), f"http://127.0.0.1:{port}"
        with running(command, env=ENVIRONMENT) as process:
            wait_for(f"{url}/health", process, 300)
            asyncio.run(kept_as_drawn(drawn_by_vllm(url, count, missing), rows, kept))
    return [Drawn(question, **row) for question, row in zip(questions(), rows, strict=True)]


class World:
    """Scores (n,) by name of all claims with a verdict, by m other answers.

    num_judged: of each question, the number of answers whose claims are judged.
    """

    def __init__(
        self,
        drawn: Sequence[Drawn],
        vectors: dict[str, Floats],
        m: int,
        num_judged: int,
    ) -> None:
        self.scores: dict[str, list[float]] = {}
        self._vectors = vectors
        self._dimension = next(iter(vectors.values())).size
        self.uqlm_input: dict[str, list[list[str]]] = {"claims": [], "drawn": []}  # the input of UQLM
        right, group = list[bool](), list[int]()
        for number, answers_ in enumerate(drawn):
            claims_ = [claims(answer, question=answers_.question.text) for answer in answers_.answers]
            for i, answer in enumerate(answers_.answers[:num_judged]):
                verdicts = [(claim, answers_.question.verdict(claim.text)) for claim in claims_[i]]
                judged = [(claim, verdict) for claim, verdict in verdicts if verdict is not None]
                if not judged:
                    continue
                others = [(i + j) % len(claims_) for j in range(1, m + 1)]
                judged_claims = [claim for claim, _ in judged]
                self._score(judged_claims, [claims_[j] for j in others], answers_.question.text)
                self.uqlm_input["claims"].append([claim.text for claim in judged_claims])
                self.uqlm_input["drawn"].append([answers_.answers[j] for j in others])
                self._score_whole(answer, self.uqlm_input["drawn"][-1], len(judged_claims))
                if answers_.tokens:
                    self._score_tokens(answer, judged_claims, answers_.tokens[i], answers_.question.text)
                right += [verdict for _, verdict in judged]
                group += [number] * len(judged)
        self.right, self.group = np.array(right), np.array(group)

    def score_by_uqlm(self, transformer: Path) -> None:
        """Add the score of UQLM's LongTextUQ that needs no other model."""
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "given.json", Path(folder) / "scores.json"
            source.write_text(json.dumps({**self.uqlm_input, "transformer": str(transformer)}), "utf-8")
            script = ROOT / "benchmarks" / "rivals_long.py"
            subprocess.run([VENV, "-W", "ignore", script, source, target], check=True)
            self._add("UQLM: LongTextUQ, matched units, cosine", json.loads(target.read_text("utf-8")))

    def _add(self, name: str, values: Sequence[float]) -> None:
        self.scores.setdefault(name, []).extend(values)

    def _score(self, judged: list[Segment], drawn: Sequence[list[Segment]], question: str) -> None:
        table = [[outcome.text for outcome in answer] for answer in drawn]
        matcher = Matcher([claim.text for claim in judged], table, self._vectors, question=question)
        matches = list(matcher.matches())
        outcomes = [*outcomes_of(matches, self._dimension)]
        served = [serve(outcome.spectrum) for outcome in outcomes]
        self._add("nearest sentences: p(y)", self._born_of(outcomes))
        self._add("nearest sentences: lambda_max", [raw.lambda_max for raw in served])
        self._add("entropy", [raw.entropy for raw in served])
        self._add("share that agrees", [outcome.support.agree / len(drawn) for outcome in outcomes])
        self._add("mean best cosine", [float(np.maximum(match.cosines, 0).mean()) for match in matches])

    def _born_of(self, outcomes: Sequence[Outcomes]) -> list[float]:
        return [outcome.born()[0] for outcome in outcomes]

    def _born(self, spectrum: Spectrum, cosines: Floats) -> float:
        return born_probability(spectrum, serve(spectrum), cosines).probability

    def _score_whole(self, answer: str, drawn: Sequence[str], count: int) -> None:
        vectors = np.stack([self._vectors[text] for text in drawn]).astype(np.float64)
        spectrum_ = spectrum(vectors)
        self._add("whole answers: p(y)", [self._born(spectrum_, vectors @ self._vectors[answer])] * count)
        self._add("whole answers: lambda_max", [float(spectrum_.eigenvalues[0])] * count)

    def _score_tokens(
        self, answer: str, judged: list[Segment], tokens: Sequence[tuple[str, float]], question: str
    ) -> None:
        spoken = claim_logprobs(answer, judged, tokens, question)
        self._add("log-probability of the facts", [logprobs.facts for logprobs in spoken if logprobs])
        self._add("least likely token of the facts", [logprobs.least for logprobs in spoken if logprobs])
        self._add("log-probability of all tokens", [logprobs.total for logprobs in spoken if logprobs])


def report(world: World, m: int) -> None:
    """Print the figures of all scores, and the differences of p(y) from the others."""
    right = world.right
    resamples = ResampleCounts.of(right.size, np.random.default_rng(0), RESAMPLES, world.group)

    def ranked(scores: Floats) -> Figure:
        return Figure(auroc(scores, right), resampled_aurocs(resamples, scores, right))

    questions_ = np.unique(world.group).size
    print(f"\nm = {m}: {right.size} claims of {questions_} questions, {right.mean():.0%} right\n")
    print(head("score", "AUROC", "their p(y) less it"))
    best = ranked(np.array(world.scores["nearest sentences: p(y)"]))
    for name, values in world.scores.items():
        figure = ranked(np.array(values) * (-1 if name == "entropy" else 1))
        print(f"| {name} | {figure.told()} | {(best - figure).told('+')} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, help="folder of another LLM, for vLLM")
    parser.add_argument("--embedder", default="all-MiniLM-L6-v2")
    parser.add_argument("--answers", type=int, default=max(SIZES) + 1, help="answers to each question")
    parser.add_argument("--judged", type=int, default=max(SIZES) + 1, help="judged answers to each question")
    parser.add_argument("--draws", type=int, nargs="+", default=SIZES, help="numbers of answers that judge")
    parser.add_argument("--again", action="store_true", help="sample new answers")
    parser.add_argument("--uqlm", action="store_true", help="also UQLM's own code")
    options = parser.parse_args()
    llm = "vllm" if options.weights is None else options.weights.name
    kept = ROOT / ".cache" / f"long-answers-{llm}-{options.answers}.json"
    drawn = draw(options.answers, kept, options.weights, again=options.again)
    texts = [answer for answers_ in drawn for answer in answers_.answers]
    for answers_ in drawn:
        question = answers_.question.text
        claims_ = [claim.text for text in answers_.answers for claim in claims(text, question=question)]
        texts += [*claims_, *compared_texts(claims_, question)]
    vectors = embedded(sorted(set(texts), key=len), options.embedder)
    print(f"{llm}, {len(drawn)} questions; {options.embedder}")
    for m in options.draws:
        world = World(drawn, vectors, m, options.judged)
        if options.uqlm:
            world.score_by_uqlm(WEIGHTS / options.embedder)
        report(world, m)
        report(World(drawn[FIRST:], vectors, m, options.judged), m)


if __name__ == "__main__":
    main()
