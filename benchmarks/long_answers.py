"""Long answers of a real LLM, judged claim by claim: sixty questions whose facts a rule can check.

    python -m benchmarks.long_answers [--llm embedded] [--embedder all-mpnet-base-v2] [--answers 11] [--uqlm]

The LLM answers each question some times (temperature .7, 160 tokens; kept in .cache as they come, `--again`
draws anew): SmolLM2-135M, or with `--weights FOLDER` the one in this folder, by vLLM.
Every answer is judged against m of the others, sentence by sentence, where a rule of
`benchmarks.long_questions` tells whether it is right. Intervals are bootstraps over questions, differences in
pairs. The last table of each m is of the questions by which nothing was chosen. Log-probabilities are
vLLM's. `--uqlm`: beside UQLM's own code (needs `make .venv-rivals/.installed`).
"""

import argparse
import asyncio
import json
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np

from benchmarks.claims import Figure, head
from benchmarks.long_questions import FIRST, Question, questions
from benchmarks.processes import ROOT, free_port, running, wait_for
from benchmarks.recorded_evidence import WEIGHTS, embedded
from benchmarks.rivals import VENV
from service.calibration.diagnostics import CrossValidated
from service.calibration.fitting import fit_all
from service.calibration.material import Material, claim_material, sentences_of
from service.calibration.rows import ClaimIn, DevRow
from service.claims.facts import beyond
from service.claims.matching import match_claims
from service.claims.segments import Segment, claims
from service.llm.embedded import EmbeddedLanguageModel, converted_model
from service.llm.port import Draw, GenerationRequest, Message, Sampling
from service.report.report import served_figures
from service.scoring.claims import outcomes_of, spoken_logprobs
from service.spectral.reliability import auroc, resampled_aurocs
from service.spectral.resampling import ResampleCounts, Resamples
from service.spectral.spectrum import Identity, Spectrum, born_probability, spectrum
from tests.support.vllm import ENVIRONMENT, serve_command

TEMPERATURE, MAX_TOKENS, SIZES, RESAMPLES = 0.7, 160, (3, 5, 10), 1000
Floats = np.ndarray
Answers = dict[str, Any]  # a question's, as they are kept


@dataclass(frozen=True)
class Drawn:
    """A question's answers: texts, and the tokens of each with their log-probabilities, if known."""

    question: Question
    answers: list[str]
    tokens: list[list[tuple[str, float]]]


async def drawn_by_vllm(url: str, count: int, asked: Sequence[Question]) -> AsyncIterator[Answers]:
    async with httpx.AsyncClient(timeout=600) as http:
        for one in asked:
            body = {
                "model": "m",
                "messages": [{"role": "user", "content": one.text}],
                **{"n": count, "temperature": TEMPERATURE, "max_tokens": MAX_TOKENS, "logprobs": True},
            }
            reply = (await http.post(f"{url}/v1/chat/completions", json=body)).raise_for_status().json()
            choices = reply["choices"]
            tokens = [[(t["token"], t["logprob"]) for t in c["logprobs"]["content"]] for c in choices]
            yield {"answers": [c["message"]["content"] for c in choices], "tokens": tokens}


async def drawn_by_embedded(count: int, asked: Sequence[Question]) -> AsyncIterator[Answers]:
    llm = EmbeddedLanguageModel(WEIGHTS)
    await llm.start()
    for one in asked:
        sampling = Sampling(temperature=TEMPERATURE, max_tokens=MAX_TOKENS, seed=questions().index(one))
        request = GenerationRequest(count, messages=(Message("user", one.text),), sampling=sampling)
        yield {"answers": [draw.text for draw in (await llm.generate(request)).draws], "tokens": []}
    await llm.stop()


async def kept_as_drawn(drawn: AsyncIterator[Answers], found: list[Answers], kept: Path) -> None:
    kept.parent.mkdir(exist_ok=True)
    async for row in drawn:
        found.append(row)
        kept.write_text(json.dumps(found))


def draw(llm: str, count: int, kept: Path, weights: Path | None, *, again: bool) -> list[Drawn]:
    """Return the answers that are kept, and draw those to the other questions."""
    found: list[Answers] = [] if again or not kept.exists() else json.loads(kept.read_text())
    asked = questions()[len(found) :]
    if asked and llm == "vllm":
        port = free_port()
        command, url = serve_command(weights or converted_model(WEIGHTS), port), f"http://127.0.0.1:{port}"
        with running(command, env=ENVIRONMENT) as process:
            wait_for(f"{url}/health", process, 300)
            asyncio.run(kept_as_drawn(drawn_by_vllm(url, count, asked), found, kept))
    elif asked:
        asyncio.run(kept_as_drawn(drawn_by_embedded(count, asked), found, kept))
    return [Drawn(one, **row) for one, row in zip(questions(), found, strict=True)]


class World:
    """Every claim that a rule judges, against m other answers: its scores, (n,) each by name."""

    def __init__(self, drawn: Sequence[Drawn], vectors: dict[str, Floats], m: int) -> None:
        self.scores: dict[str, list[float]] = {}
        self._vectors = vectors
        self._dimension = next(iter(vectors.values())).size
        self.asked: dict[str, list[list[str]]] = {"claims": [], "drawn": []}  # as UQLM takes it
        right, group = list[bool](), list[int]()
        for number, one in enumerate(drawn):
            said = [claims(answer, question=one.question.text) for answer in one.answers]
            for i, answer in enumerate(one.answers):
                verdicts = [(claim, one.question.verdict(claim.text)) for claim in said[i]]
                judged = [(claim, verdict) for claim, verdict in verdicts if verdict is not None]
                if not judged:
                    continue
                others = [(i + j) % len(said) for j in range(1, m + 1)]
                found = [claim for claim, _ in judged]
                self._score(found, [said[j] for j in others], one.question.text)
                self.asked["claims"].append([claim.text for claim in found])
                self.asked["drawn"].append([one.answers[j] for j in others])
                self._score_whole(answer, self.asked["drawn"][-1], len(found))
                if one.tokens:
                    self._score_tokens(answer, found, one.tokens[i], one.question.text)
                right += [verdict for _, verdict in judged]
                group += [number] * len(judged)
        self.right, self.group = np.array(right), np.array(group)

    def score_by_uqlm(self, transformer: Path) -> None:
        """Add the score of UQLM's LongTextUQ that needs no further model."""
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "given.json", Path(folder) / "scores.json"
            source.write_text(json.dumps({**self.asked, "transformer": str(transformer)}), "utf-8")
            script = ROOT / "benchmarks" / "rivals_long.py"
            subprocess.run([VENV, "-W", "ignore", script, source, target], check=True)
            self._add("UQLM: LongTextUQ, matched units, cosine", json.loads(target.read_text("utf-8")))

    def _add(self, name: str, values: Sequence[float]) -> None:
        self.scores.setdefault(name, []).extend(values)

    def _score(self, found: list[Segment], drawn: Sequence[list[Segment]], question: str) -> None:
        outcomes = [*outcomes_of(found, drawn, self._vectors, self._dimension, question=question)]
        served = [Identity().serve(one.spectrum.eigenvalues, one.spectrum.dimension) for one in outcomes]
        self._add(
            "nearest sentences: p(y)",
            [
                born_probability(one.spectrum, raw, one.cosines).probability
                for one, raw in zip(outcomes, served, strict=True)
            ],
        )
        self._add("nearest sentences: lambda_max", [raw.lambda_max for raw in served])
        self._add("entropy", [raw.entropy for raw in served])
        self._add("share that agrees", [one.support.agree / len(drawn) for one in outcomes])
        table = [[one.text for one in answer] for answer in drawn]
        matches = match_claims([one.text for one in found], table, self._vectors, question=question)
        self._add("mean best cosine", [float(np.maximum(one.cosines, 0).mean()) for one in matches])

    def _born(self, spectrum: Spectrum, cosines: Floats) -> float:
        served = Identity().serve(spectrum.eigenvalues, spectrum.dimension)
        return born_probability(spectrum, served, cosines).probability

    def _score_whole(self, answer: str, drawn: Sequence[str], count: int) -> None:
        vectors = np.stack([self._vectors[text] for text in drawn]).astype(np.float64)
        found = spectrum(vectors)
        self._add("whole answers: p(y)", [self._born(found, vectors @ self._vectors[answer])] * count)
        self._add("whole answers: lambda_max", [float(found.eigenvalues[0])] * count)

    def _score_tokens(
        self, answer: str, found: list[Segment], tokens: Sequence[tuple[str, float]], question: str
    ) -> None:
        spoken = spoken_logprobs(answer, found, tokens, question)
        self._add("log-probability of the facts", [one.facts for one in spoken if one])
        self._add("least likely token of the facts", [one.least for one in spoken if one])
        self._add("log-probability of all tokens", [one.total for one in spoken if one])


def report(world: World, m: int) -> None:
    """Print every score's figures, and p(y) less the others'."""
    right = world.right
    resamples = ResampleCounts.of(right.size, np.random.default_rng(0), RESAMPLES, world.group)

    def ranked(scores: Floats) -> Figure:
        return Figure(auroc(scores, right), resampled_aurocs(resamples, scores, right))

    questions_ = np.unique(world.group).size
    print(f"\nm = {m}: {right.size} claims of {questions_} questions, {right.mean():.0%} right\n")
    print(head("score", "AUROC", "their p(y) less it"))
    best = ranked(np.array(world.scores["nearest sentences: p(y)"]))
    for name, values in world.scores.items():
        one = ranked(np.array(values) * (-1 if name == "entropy" else 1))
        print(f"| {name} | {one.told()} | {(best - one).told('+')} |")


def labelled(drawn: Sequence[Drawn], vectors: dict[str, Floats], m: int) -> Material:
    """Return the claims that a rule judges as `/calibrate` has them; all of a question are one group."""
    rows, group = list[DevRow](), list[int]()
    for number, one in enumerate(drawn):
        for i, answer in enumerate(one.answers):
            found = claims(answer, question=one.question.text)
            tokens = one.tokens[i] if one.tokens else ()
            spoken = spoken_logprobs(answer, found, tokens, one.question.text)
            of_answer = tuple(
                ClaimIn(
                    text=claim.text,
                    correct=verdict,
                    logprob=own.total if own else None,
                    fact_logprob=own.facts if own else None,
                    least_logprob=own.least if own else None,
                )
                for claim, own in zip(found, spoken, strict=True)
                if (verdict := one.question.verdict(claim.text)) is not None
            )
            others = tuple(Draw(one.answers[(i + j) % len(one.answers)]) for j in range(1, m + 1))
            row = DevRow(len(rows), None, (), prompt=one.question.text, claims=of_answer)
            if of_answer:
                rows.append(replace(row, draws=others, complete=True))
                group += [number] * len(of_answer)
    said = [sentences_of(row) for row in rows]
    made = claim_material(rows, said, vectors, m, next(iter(vectors.values())).size)
    return replace(made, groups=np.array(group))


def report_calibrated(material: Material) -> None:
    """Print what a calibration of claims serves of questions that it has not seen."""
    resamples = Resamples(*[20] * 7)
    fitted = fit_all(material, "depolarized", resamples=resamples)
    shown = CrossValidated(fitted, resamples=resamples)
    print("\n" + head("calibrated claims", "projection ECE", "mean lambda_max"))
    for name in ("raw", "depolarized"):
        served = shown.served[name].lambda_max
        print(f"| {name} | {served_figures(shown, name)[0]['projection_ece']:.3f} | {served.mean():.3f} |")
    print("\n" + head("P(correct), by /calibrate", "log loss", "of the base rate"))
    for count in (0, material.num_samples):
        if count in fitted.decided:
            fit = fitted.decided[count].fit
            print(f"| {count} answers drawn | {fit.scores.log_loss:.3f} | {fit.base_rate.log_loss:.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llm", choices=("vllm", "embedded"), default="vllm")
    parser.add_argument("--weights", type=Path, help="folder of another LLM, for vLLM")
    parser.add_argument("--embedder", default="all-MiniLM-L6-v2")
    parser.add_argument("--answers", type=int, default=max(SIZES) + 1, help="of each question")
    parser.add_argument("--again", action="store_true", help="draw anew")
    parser.add_argument("--uqlm", action="store_true", help="beside UQLM's own code")
    options = parser.parse_args()
    llm = options.llm if options.weights is None else options.weights.name
    kept = ROOT / ".cache" / f"long-answers-{llm}-{options.answers}.json"
    drawn = draw(options.llm, options.answers, kept, options.weights, again=options.again)
    texts = [answer for one in drawn for answer in one.answers]
    for one in drawn:
        question = one.question.text
        said = [claim.text for text in one.answers for claim in claims(text, question=question)]
        texts += [*said, *beyond(said, question)]
    vectors = embedded(sorted(set(texts), key=len), options.embedder)
    print(f"{llm}, {len(drawn)} questions; {options.embedder}")
    for m in SIZES:
        if m < options.answers:
            world = World(drawn, vectors, m)
            if options.uqlm:
                world.score_by_uqlm(WEIGHTS / options.embedder)
            report(world, m)
            report_calibrated(labelled(drawn, vectors, m))
            report(World(drawn[FIRST:], vectors, m), m)


if __name__ == "__main__":
    main()
