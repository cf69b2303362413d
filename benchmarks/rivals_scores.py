"""Scores of UQLM and LM-Polygraph by their own code: the part of `benchmarks.rivals` in .venv-rivals.

    .venv-rivals/bin/python benchmarks/rivals_scores.py ROWS.json SCORES.json

The sign of each score is such that higher = more certain. Scores of log-probabilities are sums or means over
an answer's tokens, so spreading the recorded sum evenly over the tokens gives the same result. NaN if the
judged answer has no recorded sum.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openai
from langchain_openai import ChatOpenAI
from lm_polygraph.estimators import (
    CocoaMSP,
    CocoaPPL,
    DegMat,
    Eccentricity,
    EigValLaplacian,
    LexicalSimilarity,
    MaximumSequenceProbability,
    MonteCarloNormalizedSequenceEntropy,
    MonteCarloSequenceEntropy,
    Perplexity,
    PTrue,
    SentenceSAR,
)
from lm_polygraph.estimators.estimator import Estimator
from lm_polygraph.stat_calculators.prompt import PromptCalculator
from lm_polygraph.utils.model import BlackboxModel
from uqlm import BlackBoxUQ, WhiteBoxUQ
from uqlm.black_box import CosineScorer
from uqlm.judges import LLMJudge
from uqlm.utils.tuner import Tuner
from uqlm.white_box.p_true import PTrueScorer

UQLM, POLYGRAPH = "UQLM", "LM-Polygraph"
Rows = list[dict[str, Any]]
Scores = dict[str, list[float]]


class Remembered:
    """A sentence transformer that embeds each text once."""

    def __init__(self, model: Any, texts: list[str]) -> None:
        self._vectors = dict(zip(texts, model.encode(texts, normalize_embeddings=True), strict=True))

    def encode(self, texts: list[str]) -> np.ndarray:
        return np.stack([self._vectors[text] for text in texts])


def token_logprobs(total: float | None, tokens: int) -> list[dict[str, float]]:
    return [] if total is None else [{"logprob": total / tokens}] * tokens


def uqlm_scores(rows: Rows, m: int, cosines: dict[str, CosineScorer]) -> Scores:
    answers = [row["answer"] for row in rows]
    samples = [row["samples"][:m] for row in rows]
    own = [token_logprobs(row["logprob"], row["tokens"]) for row in rows]
    drawn = [
        [token_logprobs(*pair) for pair in zip(row["logprobs"][:m], row["sample_tokens"][:m], strict=True)]
        for row in rows
    ]
    scores: Scores = {}
    if m:
        black = BlackBoxUQ(scorers=["exact_match"], use_best=False)
        scores["exact_match"] = black.score(answers, samples, show_progress_bars=False).data["exact_match"]
        for name, scorer in cosines.items():
            scores[f"cosine_sim ({name})"] = scorer.evaluate(answers, samples)
    names = ["sequence_probability"]
    names += ["monte_carlo_probability", "consistency_and_confidence"] if m else []
    for length_normalize in (True, False):
        white = WhiteBoxUQ(scorers=names, length_normalize=length_normalize)
        if m:
            # UQLM's default transformer.
            white.sampled_logprobs_scorer._cosine_scorer = cosines["MiniLM"]
        scored = asyncio.run(
            white.score(
                logprobs_results=own,
                responses=answers,
                sampled_responses=samples,
                sampled_logprobs_results=drawn,
                show_progress_bars=False,
            )
        )
        for name in names:
            scores[f"{name}{', per token' if length_normalize else ''}"] = scored.data[name]
    return scores


def tuned_ensemble(scores: Scores, right: np.ndarray, fold: np.ndarray) -> list[float]:
    """Return UQLM's ensemble of three scores, with weights tuned for AUROC on the other folds."""
    names = ("exact_match", "cosine_sim (MiniLM)", "sequence_probability, per token")
    parts = np.array([scores[name] for name in names])
    ensemble = np.full(right.size, np.nan)
    for number in range(fold.max() + 1):
        fit, held = (fold >= 0) & (fold != number), fold == number
        tuner = Tuner()
        weights = tuner.tune_params(list(parts[:, fit]), right[fit].tolist())["weights"]
        ensemble[held] = tuner._compute_ensemble_scores(np.array(weights), parts[:, held])
    return ensemble.tolist()


def polygraph_scores(rows: Rows, m: int, cosine: Remembered) -> Scores:
    own = [
        [np.nan] if row["logprob"] is None else [row["logprob"] / row["tokens"]] * row["tokens"]
        for row in rows
    ]
    samples = [row["samples"][:m] for row in rows]
    stats: dict[str, Any] = {"greedy_log_likelihoods": own}
    estimators: list[tuple[str, Estimator]] = [
        ("MaximumSequenceProbability", MaximumSequenceProbability()),
        ("Perplexity", Perplexity()),
    ]
    if m:
        vectors = [cosine.encode(texts) for texts in samples]
        stats |= {
            "sample_texts": samples,
            "sample_log_probs": [row["logprobs"][:m] for row in rows],
            "sample_tokens": [[range(n) for n in row["sample_tokens"][:m]] for row in rows],
            "greedy_sentence_similarity": [
                vectors_ @ cosine.encode([row["answer"]])[0]
                for vectors_, row in zip(vectors, rows, strict=True)
            ],
            "sample_sentence_similarity": [np.clip(vectors_ @ vectors_.T, 0, 1) for vectors_ in vectors],
        }
        estimators += [
            ("MonteCarloSequenceEntropy", MonteCarloSequenceEntropy()),
            ("MonteCarloNormalizedSequenceEntropy", MonteCarloNormalizedSequenceEntropy()),
            ("CocoaMSP, cosine", CocoaMSP()),
            ("CocoaPPL, cosine", CocoaPPL()),
            ("SentenceSAR, cosine", SentenceSAR()),
        ]
    if m > 1:  # these need pairs of answers
        estimators += [
            ("LexicalSimilarity, rougeL", LexicalSimilarity("rougeL")),
            ("LexicalSimilarity, BLEU", LexicalSimilarity("BLEU")),
            ("DegMat, Jaccard", DegMat("Jaccard_score")),
            ("Eccentricity, Jaccard", Eccentricity("Jaccard_score")),
            ("EigValLaplacian, Jaccard", EigValLaplacian("Jaccard_score")),
        ]
    return {name: (-np.asarray(estimator(stats), dtype=float)).tolist() for name, estimator in estimators}


async def uqlm_judged(questions: list[str], answers: list[str], llm: ChatOpenAI) -> Scores:
    judged = await LLMJudge(llm).judge_responses(questions, answers)
    return {"LLMJudge": judged["scores"], **await PTrueScorer(llm).evaluate(questions, answers)}


def polygraph_judged(questions: list[str], answers: list[str], llm: str) -> Scores:
    """Return PTrue with the chat template, which LM-Polygraph applies to instruct LLMs."""
    calculator = PromptCalculator()
    prompts = [calculator.prompt.format(q=q, a=a) for q, a in zip(questions, answers, strict=True)]
    model = BlackboxModel.from_openai(os.environ["OPENAI_API_KEY"], llm, supports_logprobs=True)
    model.generate_texts(prompts, max_new_tokens=1, output_scores=True, top_logprobs=20)
    tops = [{top.token: top.logprob for top in found.content[0].top_logprobs} for found in model.logprobs]
    # A token that is not among the 20 most probable ones is at most as probable as the last of them.
    logprobs = [top.get(calculator.expected, min(top.values())) for top in tops]
    return {"PTrue": (-PTrue()({"p_true": np.array(logprobs)})).tolist()}


def judged_scores(rows: Rows, url: str) -> dict[str, Scores]:
    """Return the scores by package for which the LLM server judges the answers."""
    os.environ |= {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "none"}
    llm = openai.OpenAI().models.list().data[0].id
    chat = ChatOpenAI(model=llm, temperature=0, max_tokens=50, timeout=3600)
    questions, answers = [row["question"] for row in rows], [row["answer"] for row in rows]
    return {
        UQLM: asyncio.run(uqlm_judged(questions, answers, chat)),
        POLYGRAPH: polygraph_judged(questions, answers, llm),
    }


def main(source: Path, target: Path) -> None:
    data = json.loads(source.read_text("utf-8"))
    rows, right, fold = data["rows"], np.array(data["right"]), np.array(data["fold"])
    texts = sorted({text for row in rows for text in [row["answer"], *row["samples"]]})
    cosines = {}
    for name, path in data["transformers"].items():
        cosines[name] = CosineScorer(transformer=path)
        cosines[name].model = Remembered(cosines[name].model, texts)
    scores: dict[int, dict[str, Scores]] = {}
    scorers: dict[str, Callable[[int], Scores]] = {
        UQLM: lambda m: uqlm_scores(rows, m, cosines),
        POLYGRAPH: lambda m: polygraph_scores(rows, m, cosines["mpnet"].model),
    }
    judged = judged_scores(rows, data["url"]) if data["url"] else {UQLM: {}, POLYGRAPH: {}}
    for m in data["sizes"]:
        scores[m] = {package: score(m) | judged[package] for package, score in scorers.items()}
        if m:
            scores[m][UQLM]["ensemble, tuned on labels"] = tuned_ensemble(scores[m][UQLM], right, fold)
    target.write_text(json.dumps(scores), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
