"""The default calibration of claims, for `tools.default_calibration`: fitted on composed long answers.

The recorded rows, shuffled, make answers of three claims each: a sentence from each of three rows, its
question and an answer in one of four wordings; draw j of an answer holds draw j of its rows. A claim is the
sentence of a row's `answer`, right where that is; the maps are fitted to the sentences of the references
(method, section 14). A map by evidence there is none: the log-probability of a whole answer says nothing of
one claim.
"""

import json
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from service.calibration.calibration import features
from service.claims.facts import facts
from service.spectral.born import born_probabilities
from service.spectral.claims import MatchedUnits
from service.spectral.correctness_model import ModelPrior, model_prior, sigmoid
from service.spectral.dev_set import DevSet, Overlaps, served_entropies, solve, weighted
from service.spectral.fit import DepolarizedRisk, fit_depolarized, terms
from service.spectral.maps import DepolarizedMap
from service.spectral.text_scores import correct
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
        texts = dict.fromkeys(chain(*claims, *references, *chain(*drawn)))
        vectors = embedded(list(texts), weights)
        for made in zip(claims, references, drawn, strict=True):
            self._compose(*made, vectors)
        self.dimension = vectors[claims[0][0]].size
        self.right = np.array([correct(row["answer"], [row["reference"]]) for row in rows])

    def _compose(
        self,
        claims: list[str],
        references: list[str],
        drawn: list[list[str]],
        vectors: dict[str, np.ndarray],
    ) -> None:
        sentences = list(dict.fromkeys(chain(*drawn)))
        place = {text: i for i, text in enumerate(sentences)}
        known = facts([*claims, *references, *sentences])
        units = MatchedUnits.of(
            [vectors[text] for text in claims],
            [vectors[text] for text in sentences],
            [[place[text] for text in answer] for answer in drawn],
            (known[: len(claims)], known[2 * len(claims) :]),
        )
        self.to_claim += units.overlaps()
        facts_of = known[len(claims) : 2 * len(claims)]
        self.to_reference += units.overlaps(
            [(vectors[text][None], [one]) for text, one in zip(references, facts_of, strict=True)]
        )

    def at(self, overlaps: Sequence[Overlaps], m: int) -> DevSet:
        """Return the spectra of the first m answers."""
        return solve([weighted(one, np.arange(m)) for one in overlaps], self.dimension)


def claims(composed: Composed, sizes: Sequence[int]) -> dict[str, Any]:
    """Return the figures that are packaged: of the depolarized map, and of what ranks claims under it."""
    parameters, hessians, models = [], [], list[ModelPrior]()
    for m in sizes:
        dev = composed.at(composed.to_reference, m)
        g = fit_depolarized(dev).map
        theta = np.array([np.log(g.temperature), np.log(g.depolarization) - np.log1p(-g.depolarization)])
        parameters.append(theta.tolist())
        hessians.append(DepolarizedRisk(terms(dev))(theta)[2].tolist())
        map_ = DepolarizedMap(float(np.exp(theta[0])), float(sigmoid(theta[1])))
        judged = composed.at(composed.to_claim, m)
        columns = features(born_probabilities(map_, judged), served_entropies(map_, judged))
        models.append(
            model_prior(columns, composed.right, WITHOUT_EVIDENCE_FEATURES, float(composed.right.size))
        )
    return {
        "maps": {"depolarized": {"sizes": list(sizes), "parameters": parameters, "hessians": hessians}},
        "correctness": {"depolarized": [model_table(WITHOUT_EVIDENCE_FEATURES, list(sizes), models)]},
    }
