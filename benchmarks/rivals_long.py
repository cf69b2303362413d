"""UQLM's LongTextUQ by its own code: the half of `benchmarks.long_answers` in .venv-rivals.

    .venv-rivals/bin/python benchmarks/rivals_long.py GIVEN.json SCORES.json

Of matched units, by cosines: its other scores take an NLI model, BERTScore's or another LLM. It cuts the
answers into sentences itself; the claims are given, since verdicts are on those.
"""

import json
import sys
from pathlib import Path

import numpy as np
from rivals_scores import Remembered
from uqlm.longform.decomposition import ResponseDecomposer
from uqlm.longform.luq.matched_unit import MatchedUnitScorer


def main(source: Path, target: Path) -> None:
    given = json.loads(source.read_text("utf-8"))
    drawn = ResponseDecomposer().decompose_candidate_sentences(given["drawn"])
    scorer = MatchedUnitScorer(consistency_functions=["cosine_sim"], transformer=given["transformer"])
    said = {text for answers in drawn for answer in answers for text in answer}
    texts = sorted(said.union(*given["claims"]))
    scorer.cosine_scorer.model = Remembered(scorer.cosine_scorer.model, texts)
    found = scorer.evaluate(claim_sets=given["claims"], sampled_claim_sets=drawn)
    means = np.concatenate([scores.mean(axis=1) for scores in found.cosine_similarity_lists])
    target.write_text(json.dumps(means.tolist()), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
