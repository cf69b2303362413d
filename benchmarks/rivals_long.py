"""UQLM's LongTextUQ by its own code: the part of `benchmarks.long_answers` in .venv-rivals.

    .venv-rivals/bin/python benchmarks/rivals_long.py GIVEN.json SCORES.json

The score is of matched units with cosines: its other scores need an NLI model, BERTScore or another LLM. UQLM
splits the answers into sentences itself; the claims are given, because they have the verdicts.
"""

import json
import sys
from pathlib import Path

import numpy as np
from rivals_scores import Remembered
from uqlm.longform.decomposition import ResponseDecomposer
from uqlm.longform.luq.matched_unit import MatchedUnitScorer


def main(source: Path, target: Path) -> None:
    data = json.loads(source.read_text("utf-8"))
    drawn = ResponseDecomposer().decompose_candidate_sentences(data["drawn"])
    scorer = MatchedUnitScorer(consistency_functions=["cosine_sim"], transformer=data["transformer"])
    sentences = {text for answers in drawn for answer in answers for text in answer}
    texts = sorted(sentences.union(*data["claims"]))
    scorer.cosine_scorer.model = Remembered(scorer.cosine_scorer.model, texts)
    scored = scorer.evaluate(claim_sets=data["claims"], sampled_claim_sets=drawn)
    means = np.concatenate([scores.mean(axis=1) for scores in scored.cosine_similarity_lists])
    target.write_text(json.dumps(means.tolist()), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
