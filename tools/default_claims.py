"""The default calibration of claims, for `tools.default_calibration`: fitted on composed long answers.

The recorded rows, shuffled, make answers of three claims each: a sentence from each of three rows, its
question and an answer in one of four wordings; draw j of an answer holds draw j of its rows. A claim is the
sentence of a row's `answer`, right where that is; the maps are fitted to the sentences of the references
(method, section 13). A map by evidence there is none: the log-probability of a whole answer says nothing of
one claim.
"""

import json
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from service.calibration.calibration import features
from service.calibration.fitting import METHODS
from service.claims.facts import beyond, sentence_vectors
from service.claims.verdicts import correct
from service.spectral.claims import MatchedUnits
from service.spectral.correctness_model import ModelPrior, model_prior
from service.spectral.dev_set import DevSet, Overlaps, born_probabilities, served_entropies, solve, weighted
from service.spectral.fit import fit, objective, point_of
from tools.default_models import WITHOUT_EVIDENCE_FEATURES, embedded, model_table

CLAIMS = 3  # of an answer
# Of a question and an answer: no two drawn answers say a thing in the same words.
WORDINGS: tuple[Callable[[str, str], str], ...] = (
    lambda question, answer: f"{question}: {answer}.",
    lambda question, answer: f"{answer} is the answer to the question {question.lower()}",
    lambda question, answer: f"Asked {question.lower()}, most people would say {answer}.",
    lambda question, answer: f"{question} It is {answer}.",
)


class Composed:
    """The claims of composed answers: what spectra of them need, to the claim and to its reference."""

    def __init__(self, names: Sequence[str], data: Path, weights: Path, num_samples: int) -> None:
        every = [
            json.loads(line)
            for name in names
            for line in (data / f"{name}.jsonl").read_text("utf-8").splitlines()
        ]
        order = np.random.default_rng(0).permutation(len(every))[: len(every) // CLAIMS * CLAIMS]
        self.to_claim, self.to_reference = list[Overlaps](), list[Overlaps]()
        rows = [every[i] for i in order]
        rng = np.random.default_rng(1)

        def said(row: dict[str, Any], answer: str) -> str:
            return WORDINGS[rng.integers(len(WORDINGS))](row["prompt"], answer.strip())

        answers = [rows[start : start + CLAIMS] for start in range(0, len(rows), CLAIMS)]
        claims = [[said(row, row["answer"]) for row in mine] for mine in answers]
        references = [[said(row, row["reference"]) for row in mine] for mine in answers]
        drawn = [
            [[said(row, row["samples"][j]) for row in mine] for j in range(num_samples)] for mine in answers
        ]
        # An answer's question is the three of its claims.
        questions = [" ".join(row["prompt"] for row in mine) for mine in answers]
        texts = dict[str, None]()
        for question, own, right, said_ in zip(questions, claims, references, drawn, strict=True):
            of_answer = [*own, *right, *chain(*said_)]
            texts |= dict.fromkeys(of_answer) | dict.fromkeys(beyond(of_answer, question))
        vectors = embedded(list(texts), weights)
        for made in zip(questions, claims, references, drawn, strict=True):
            self._compose(*made, vectors)
        self.dimension = vectors[claims[0][0]].size
        self.right = np.array([correct(row["answer"], [row["reference"]]) for row in rows])

    def _compose(
        self,
        question: str,
        claims: list[str],
        references: list[str],
        drawn: list[list[str]],
        vectors: dict[str, np.ndarray],
    ) -> None:
        sentences = list(dict.fromkeys(chain(*drawn)))
        place = {text: i for i, text in enumerate(sentences)}
        every = [*claims, *references, *sentences]
        read = sentence_vectors(every, vectors, question=question)
        own, of_references, table = (
            read.take(range(first, last))
            for first, last in pairwise([0, len(claims), 2 * len(claims), len(every)])
        )
        units = MatchedUnits.of(own, table, [[place[text] for text in answer] for answer in drawn])
        self.to_claim += units.overlaps()
        self.to_reference += units.overlaps([of_references.take([i]) for i in range(len(references))])

    def at(self, overlaps: Sequence[Overlaps], m: int) -> DevSet:
        """Return the spectra of the first m answers."""
        return solve([weighted(one, np.arange(m)) for one in overlaps], self.dimension)


def claims(composed: Composed, sizes: Sequence[int]) -> dict[str, Any]:
    """Return the figures that are packaged: of both maps, and of what ranks claims under each."""
    maps, correctness = {}, {}
    for method in METHODS:
        parameters, hessians, models = [], [], list[ModelPrior]()
        for m in sizes:
            dev = composed.at(composed.to_reference, m)
            map_ = fit(dev, method).map
            theta = point_of(map_)
            parameters.append(theta.tolist())
            hessians.append(objective(dev, method)(theta)[2].tolist())
            judged = composed.at(composed.to_claim, m)
            columns = features(born_probabilities(map_, judged), served_entropies(map_, judged))
            rows = float(composed.right.size)
            models.append(model_prior(columns, composed.right, WITHOUT_EVIDENCE_FEATURES, rows))
        maps[method] = {"sizes": list(sizes), "parameters": parameters, "hessians": hessians}
        correctness[method] = [model_table(WITHOUT_EVIDENCE_FEATURES, list(sizes), models)]
    return {"maps": maps, "correctness": correctness}
