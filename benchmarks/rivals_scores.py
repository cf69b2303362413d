"""Scores of UQLM and LM-Polygraph by their own code: the part of `benchmarks.rivals` in .venv-rivals.

    .venv-rivals/bin/python benchmarks/rivals_scores.py ROWS.json SCORES.json

The sign of each score is such that higher = more certain. Scores of log-probabilities are sums or means over
an answer's tokens, so spreading the recorded sum evenly over the tokens gives the same result. NaN if the
judged answer has no recorded sum.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
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
    SentenceSAR,
)
from lm_polygraph.estimators.estimator import Estimator
from uqlm import BlackBoxUQ, WhiteBoxUQ
from uqlm.black_box import CosineScorer
from uqlm.utils.tuner import Tuner

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
    for m in data["sizes"]:
        scores[m] = {package: score(m) for package, score in scorers.items()}
        if m:
            scores[m][UQLM]["ensemble, tuned on labels"] = tuned_ensemble(scores[m][UQLM], right, fold)
    target.write_text(json.dumps(scores), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
