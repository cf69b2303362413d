"""The default calibration of claims, for `tools.default_calibration`: fitted on composed long answers.

The recorded rows, shuffled, make answers of three claims each: the sentences "question: answer." of three
rows, draw j of an answer holds draw j of its rows. A claim is the sentence of a row's `answer`, right where
that is; the maps are fitted to the sentences of the references (method, section 14). A map by evidence there
is none: the log-probability of a whole answer says nothing of one claim.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from service.calibration.calibration import features
from service.spectral.born import born_probabilities
from service.spectral.claims import MatchedUnits
from service.spectral.correctness_model import ModelPrior, model_prior, sigmoid
from service.spectral.dev_set import DevSet, Overlaps, served_entropies, solve, weighted
from service.spectral.fit import DepolarizedRisk, fit_depolarized, terms
from service.spectral.maps import DepolarizedMap
from service.spectral.text_scores import correct
from tools.default_models import WITHOUT_EVIDENCE_FEATURES, embedded, model_table

CLAIMS = 3  # of an answer


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
        texts = list(dict.fromkeys(_said(row, text) for row in rows for text in _texts(row, num_samples)))
        vectors = embedded(texts, weights)
        for start in range(0, len(rows), CLAIMS):
            self._compose(rows[start : start + CLAIMS], vectors, num_samples)
        self.dimension = vectors[texts[0]].size
        self.right = np.array([correct(row["answer"], [row["reference"]]) for row in rows])

    def _compose(self, rows: list[dict[str, Any]], vectors: dict[str, np.ndarray], num_samples: int) -> None:
        drawn = [[_said(row, row["samples"][j]) for row in rows] for j in range(num_samples)]
        sentences = list(dict.fromkeys(text for answer in drawn for text in answer))
        place = {text: i for i, text in enumerate(sentences)}
        units = MatchedUnits.of(
            [vectors[_said(row, row["answer"])] for row in rows],
            [vectors[text] for text in sentences],
            [[place[text] for text in answer] for answer in drawn],
        )
        self.to_claim += units.overlaps()
        self.to_reference += units.overlaps([vectors[_said(row, row["reference"])][None] for row in rows])

    def at(self, overlaps: Sequence[Overlaps], m: int) -> DevSet:
        """Return the spectra of the first m answers."""
        return solve([weighted(one, np.arange(m)) for one in overlaps], self.dimension)


def _texts(row: dict[str, Any], num_samples: int) -> list[str]:
    return [row["answer"], row["reference"], *row["samples"][:num_samples]]


def _said(row: dict[str, Any], answer: str) -> str:
    return f"{row['prompt']}: {answer.strip()}."


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
