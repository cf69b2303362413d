"""The recorded answers with their log-probabilities and verdicts, and what P(correct) takes from them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from service.calibration.calibration import answer_features
from service.claims.verdicts import correct
from service.spectral.correctness_model import FEATURES, FEATURES_ALONE, Columns, logit_probability
from service.spectral.dev_set import Answers, DevSet, born_probabilities, dev_set, served_entropies, supported
from service.spectral.evidence import logit_missing_mass, mean_log_probability, missing_mass
from service.spectral.fit import assign_folds, fit_depolarized, fit_evidence
from service.spectral.text_scores import per_word

ROOT = Path(__file__).parents[1]
DATA, WEIGHTS = ROOT.parent / "shared" / "data", ROOT / "data" / "weights"
TEST, DEV = "triviaqa_test_smollm2_m20", "triviaqa_dev_smollm2_m40"
D = 768


def embedded(texts: Sequence[str], name: str = "all-mpnet-base-v2") -> dict[str, np.ndarray]:
    """Vectors of the texts, or none where the weights are not at hand."""
    path = WEIGHTS / name
    if not path.exists() or not texts:
        return {}
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(path), device="cpu")
    return dict(zip(texts, model.encode(list(texts), normalize_embeddings=True), strict=True))


class Recorded:
    """One file or several: answers, log-probabilities, the answer to be judged and its verdict.

    Of several files as many answers a row as all have. embed: whether answers without a recorded vector are
    embedded; rows without are left out of what needs it.
    """

    def __init__(self, *names: str, embed: bool) -> None:
        files = [np.load(DATA / f"{name}.npz") for name in names]
        self.vectors = np.concatenate([one["emb"] for one in files])
        first = np.cumsum([0, *(len(one["emb"]) for one in files)])
        count = min(one["S"].shape[1] for one in files)
        lines = [line for name in names for line in (DATA / f"{name}.jsonl").read_text().splitlines()]
        whole: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self.rows = [row | {name: row[name][:count] for name in ("samples", "logprob")} for row in whole]
        pairs = list(zip(files, first[:-1], strict=True))
        self.drawn = np.concatenate([one["S"][:, :count] + start for one, start in pairs])
        self.references = np.concatenate([one["Y"] + start for one, start in pairs])
        self.right = np.array([correct(row["answer"], [row["reference"]]) for row in self.rows])
        self._embed = embed

    @cached_property
    def answer_vectors(self) -> dict[str, np.ndarray]:
        known = {
            text: self.vectors[at]
            for row, drawn, reference in zip(self.rows, self.drawn, self.references, strict=True)
            for text, at in zip([*row["samples"], row["reference"]], [*drawn, reference], strict=True)
        }
        missing = sorted({row["answer"] for row in self.rows} - known.keys())
        return known | (embedded(missing) if self._embed else {})

    @cached_property
    def judged(self) -> np.ndarray:
        """Which rows have a vector of their `answer`."""
        return np.array([row["answer"] in self.answer_vectors for row in self.rows])

    def answers(self, m: int, targets: np.ndarray | None = None) -> list[Answers]:
        """The first m answers of each row; the references, or others (n, d) in their place."""
        rows = self.vectors[self.references] if targets is None else targets
        made = []
        for drawn, target in zip(self.drawn[:, :m], rows, strict=True):
            distinct, index = np.unique(drawn, return_inverse=True)
            made.append(Answers(self.vectors[distinct], index, target[None]))
        return made

    def sums(self, m: int) -> list[np.ndarray]:
        return [np.array(row["logprob"][:m]) for row in self.rows]

    def evidence(self, m: int) -> DevSet:
        made = self.answers(m)
        missing = [missing_mass(one, row.index) for one, row in zip(self.sums(m), made, strict=True)]
        return replace(dev_set(made, D), missing_mass=np.array(missing))

    def alone(self) -> "MaterialAlone":
        """What P(correct) of the first answers rests on, each judged by itself."""
        texts, totals = ([row[name][0] for row in self.rows] for name in ("samples", "logprob"))
        pairs = zip(texts, self.rows, strict=True)
        right = [correct(text, [row["reference"]]) for text, row in pairs]
        return MaterialAlone(answer_features(totals, texts), np.array(right))

    def material(self, m: int) -> "Material":
        """What P(correct) of the judged rows rests on."""
        none = np.eye(1, D, dtype=np.float32)[0]
        targets = np.stack([self.answer_vectors.get(row["answer"], none) for row in self.rows])
        means = np.array([mean_log_probability(one) for one in self.sums(m)])
        spoken = [per_word(one, row["samples"][:m]) for one, row in zip(self.sums(m), self.rows, strict=True)]
        words = np.array([mean_log_probability(one) for one in spoken])
        kept = self.judged
        return Material(
            self.evidence(m).take(kept),
            dev_set(self.answers(m, targets), D).take(kept),
            means[kept],
            words[kept],
            self.right[kept],
        )


@dataclass(frozen=True)
class Material:
    """Judged rows: spectra with u, the same with the judged text as target, means of log p, verdicts."""

    rows: DevSet
    candidates: DevSet
    mean_log_probability: np.ndarray
    log_probability_per_word: np.ndarray
    right: np.ndarray
    features = FEATURES

    def supported(self, held: np.ndarray) -> np.ndarray:
        """Whether an answer drawn supports the judged text, of the held rows."""
        return supported(self.candidates.take(held))

    def columns(self, fitted: np.ndarray, held: np.ndarray, *, evidence: bool) -> dict[str, np.ndarray]:
        """Features of the held rows under the map fitted on others (masks)."""
        fit, rows = self.rows.take(fitted), self.rows.take(held)
        map_ = fit_evidence(fit).map if evidence else fit_depolarized(fit).map
        p = born_probabilities(rows.mapped_by(map_), self.candidates.take(held))
        found = {"logit_probability": logit_probability(p), "entropy": served_entropies(map_, rows)}
        if evidence:
            found["logit_missing_mass"] = logit_missing_mass(rows.missing_mass)
            found["mean_log_probability"] = self.mean_log_probability[held]
            found["log_probability_per_word"] = self.log_probability_per_word[held]
        return found

    def held_out_columns(self, *, evidence: bool) -> dict[str, np.ndarray]:
        """Features of every row under the map of the four fifths that it is not in."""
        fold = assign_folds(len(self.rows), 5, np.random.default_rng(0))
        parts = [self.columns(fold != number, fold == number, evidence=evidence) for number in range(5)]
        back = np.argsort(np.argsort(fold, kind="stable"), kind="stable")
        return {name: np.concatenate([part[name] for part in parts])[back] for name in parts[0]}


@dataclass(frozen=True)
class MaterialAlone:
    """The first answers, each judged by its own log-probability, and the verdicts on them."""

    every: Columns
    right: np.ndarray
    features = FEATURES_ALONE

    def supported(self, held: np.ndarray) -> np.ndarray:
        """Whether a score may let the text through, of the held rows: here any."""
        return np.ones(np.count_nonzero(held), dtype=np.bool_)

    def columns(self, fitted: np.ndarray, held: np.ndarray, *, evidence: bool) -> dict[str, np.ndarray]:
        """Features of the held rows; there is no map to be fitted on others."""
        return {name: np.asarray(column)[held] for name, column in self.every.items()}
