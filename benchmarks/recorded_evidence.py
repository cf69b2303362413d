"""The recorded answers as rows of a calibration: spectra, features and verdicts.

Most sets are in ../shared/data. `benchmarks.record` leaves the sets of `LOCAL` in .cache/recorded; scripts
skip them where they are absent.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from service.calibration.calibration import PRIOR_WEIGHT
from service.calibration.labels import Judged, LabelledRows
from service.calibration.material import all_texts, assemble
from service.calibration.rows import DevRow
from service.claims.verdicts import correct
from service.embedding.port import FACTS, PAPER, Kernel
from service.llm.samples import Draw
from service.spectral.correctness_model import (
    fit_correctness,
    stratified_folds,
)
from service.spectral.dev_set import DevSpectra
from service.spectral.evidence import EvidenceMap
from service.spectral.fit import Prior, fit_depolarized, fit_evidence, objective, point_of

ROOT = Path(__file__).parents[1]
DATA, WEIGHTS = ROOT.parent / "shared" / "data", ROOT / "data" / "weights"
RECORDED = ROOT / ".cache" / "recorded"  # from `benchmarks.record`
TEST, DEV = "triviaqa_test_smollm2_m20", "triviaqa_dev_smollm2_m40"
QWEN, EVERYDAY = "triviaqa_test_qwen1.5b_m10", "everyday_qwen1.5b_m10"
NAMES = {
    QWEN: "Qwen2.5-Coder-1.5B, TriviaQA",
    EVERYDAY: "Qwen2.5-Coder-1.5B, everyday questions",
    TEST: "SmolLM2-135M, TriviaQA test",
    DEV: "SmolLM2-135M, TriviaQA dev",
}
QWEN_DEV, QWEN_NQ = "triviaqa_qwen1.5b_m20", "nq_qwen1.5b_m20"
LOCAL = {
    QWEN_DEV: "Qwen2.5-Coder-1.5B, TriviaQA dev",
    QWEN_NQ: "Qwen2.5-Coder-1.5B, Natural Questions",
}
OTHER = {TEST: DEV, DEV: TEST, QWEN: EVERYDAY, EVERYDAY: QWEN}
P_TRUE = {QWEN: "ptrue_triviaqa_test_qwen1.5b", EVERYDAY: "ptrue_everyday_qwen1.5b"}  # self-checks
D = 768
FOLDS = 5


def path_of(name: str) -> Path:
    return (RECORDED if name in LOCAL else DATA) / f"{name}.jsonl"


def titles() -> dict[str, str]:
    """Return the titles of all sets by name, `LOCAL` first. Print the names of sets without a file."""
    for name in LOCAL:
        if not path_of(name).exists():
            print(f"Skipped, because `benchmarks.record` has left no such file: {name}.jsonl")
    return {name: title for name, title in LOCAL.items() if path_of(name).exists()} | NAMES


def tokenizer_of(name: str) -> Any | None:
    """Return the tokenizer of the LLM of a set; None if it is not in data/weights."""
    llm = "SmolLM2" if name in (TEST, DEV) else "Qwen2.5"
    path = next(WEIGHTS.glob(f"{llm}*/tokenizer.json"), None)
    if path is None:
        return None
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))


def embedded(texts: Sequence[str], name: str = "all-mpnet-base-v2") -> dict[str, np.ndarray]:
    """Return the vectors of the texts; an empty dict without the weights."""
    path = WEIGHTS / name
    if not path.exists() or not texts:
        return {}
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(path), device="cpu")
    return dict(zip(texts, model.encode(list(texts), normalize_embeddings=True), strict=True))


def own_logprob(row: Mapping[str, Any]) -> float | None:
    """Return the log-probability of the row's `answer`, recorded or of a sample with the same text."""
    sums = [
        total
        for text, total in zip(row["samples"], row["logprob"], strict=True)
        if text.strip() == row["answer"].strip()
    ]
    recorded: float | None = row.get("answer_logprob", max(sums, default=None))
    return recorded


def references_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    reference = row["reference"]
    return (reference,) if isinstance(reference, str) else tuple(reference)


class Recorded:
    """The rows of recorded files: answers, log-probabilities, the judged text and its verdict.

    All rows are cut to the smallest number of answers. Verdicts are recorded (`correct`), else by words.
    embed: embed the texts without a recorded vector; otherwise rows with such a text are left out. of: the
    judged text: "answer" (the row's own), "spoken" (the same, only rows with its log-probability) or "first"
    (the first sample, which is then removed from the samples).
    """

    def __init__(
        self,
        *names: str,
        embed: bool,
        kernel: Kernel = PAPER,
        of: Literal["answer", "spoken", "first"] = "answer",
    ) -> None:
        self.names = names
        self._recorded: dict[str, np.ndarray] = {}
        self._embed, self._kernel = embed, kernel
        all_rows = list[dict[str, Any]]()
        for name in names:
            lines = path_of(name).read_text("utf-8").splitlines()
            rows = [json.loads(line) for line in lines]
            self._recorded |= recorded_vectors(name, rows)
            all_rows += rows
        self.num_samples = min(len(row["samples"]) for row in all_rows)
        self.rows = [_cut(row, self.num_samples) for row in all_rows]
        if of == "spoken":
            pairs = [(row, own_logprob(row)) for row in self.rows]
            self.rows = [row | {"answer_logprob": own} for row, own in pairs if own is not None]
        if of == "first":
            self.rows = [_of_first(row) for row in self.rows]
            self.num_samples -= 1
        self._stored = [_stored(i, row) for i, row in enumerate(self.rows, start=1)]
        self.right = np.array([_is_right(row) for row in self._stored])

    @cached_property
    def answer_vectors(self) -> dict[str, np.ndarray]:
        """Vectors (d,) of the compared texts."""
        missing = [text for text in all_texts(self._stored, self._kernel) if text not in self._recorded]
        return self._recorded | (embedded(missing) if self._embed else {})

    @cached_property
    def judged(self) -> np.ndarray:
        """Whether each row has vectors of all its texts (n,)."""
        return np.array([
            all(text in self.answer_vectors for text in all_texts([row], self._kernel))
            for row in self._stored
        ])  # fmt: skip

    @cached_property
    def full(self) -> LabelledRows:
        """The judged rows as rows of a calibration."""
        return self._assembled([row for row, judged in zip(self._stored, self.judged, strict=True) if judged])

    def _assembled(self, rows: Sequence[DevRow]) -> LabelledRows:
        texts = all_texts(rows, self._kernel)
        place = {text: i for i, text in enumerate(texts)}
        vectors = np.stack([self.answer_vectors[text] for text in texts])
        return LabelledRows(assemble(rows, self.num_samples, vectors, place, D, self._kernel))

    def material(self, m: int) -> "Material":
        """Return the judged rows with their first m answers.

        m = 0: the judged text is the only answer. Without its log-probability, the first sample is judged
        instead.
        """
        if m:
            return Material(self.full.at(m))
        rows = self._stored
        if any(row.answer_logprob is None for row in rows):
            rows = [replace(row, answer=None) for row in rows]
        labelled = self._assembled(rows)
        assert labelled.own_logprob_share == 1
        return Material(labelled.at(0))


def recorded_vectors(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return the recorded vectors (d,) of a file's samples and references."""
    path = DATA / f"{name}.npz"
    if not path.exists():
        return {}
    with np.load(path) as arrays:
        vectors, drawn, references = (arrays[key] for key in ("emb", "S", "Y"))
    vector_by_text: dict[str, np.ndarray] = {}
    for row, places, reference in zip(rows, drawn, references, strict=True):
        vector_by_text |= dict(zip(row["samples"], vectors[places], strict=True))
        vector_by_text[row["reference"]] = vectors[reference]
    return vector_by_text


def _is_right(row: DevRow) -> bool:
    if row.correct is not None:
        return row.correct
    return correct(row.answer or "", row.references, row.question or "")


def _cut(row: dict[str, Any], count: int) -> dict[str, Any]:
    return row | {name: row[name][:count] for name in ("samples", "logprob")}


def _of_first(row: dict[str, Any]) -> dict[str, Any]:
    own = {"answer": row["samples"][0], "answer_logprob": row["logprob"][0], "correct": None}
    return row | own | {name: row[name][1:] for name in ("samples", "logprob")}


def _stored(line: int, row: Mapping[str, Any]) -> DevRow:
    pairs = zip(row["samples"], row["logprob"], strict=True)
    return DevRow(
        line,
        None,
        references_of(row),
        prompt=row["prompt"],
        answer=row["answer"],
        answer_logprob=row.get("answer_logprob"),
        correct=row.get("correct"),
        draws=tuple(Draw(text, total_logprob=total) for text, total in pairs),
        complete=True,
    )


@dataclass(frozen=True)
class Material:
    """Judged rows with some of their answers, and their features under maps fitted on other rows."""

    judged: Judged

    @property
    def rows(self) -> DevSpectra:
        """Spectra with their missing masses; the targets are the references."""
        return self.judged.rows

    @property
    def candidates(self) -> DevSpectra:
        """Spectra with their missing masses; the targets are the judged texts."""
        return self.judged.texts

    @property
    def right(self) -> np.ndarray:
        return self.judged.right

    def supported(self, held: np.ndarray) -> np.ndarray:
        """Return whether a score may let the judged text through, for the held rows."""
        return self.judged.take(held).supported

    def columns(
        self, fitted: np.ndarray, held: np.ndarray, *, evidence: bool = True, prior: Prior | None = None
    ) -> dict[str, np.ndarray]:
        """Return the features of the held rows under the map of the fitted rows, shrunk to the prior."""
        rows = self.rows.take(fitted)
        map_ = fit_evidence(rows, prior=prior).map if evidence else fit_depolarized(rows, prior=prior).map
        columns = self.judged.take(held).columns(map_)
        return {name: np.asarray(column) for name, column in columns.items()}

    def held_out_columns(self, *, evidence: bool) -> dict[str, np.ndarray]:
        """Return the features of each row under the map fitted on the other four fifths."""
        fold = stratified_folds(self.right, FOLDS, np.random.default_rng(0))
        parts = [self.columns(fold != k, fold == k, evidence=evidence) for k in range(FOLDS)]
        back = np.argsort(np.argsort(fold, kind="stable"), kind="stable")
        return {name: np.concatenate([part[name] for part in parts])[back] for name in parts[0]}

    def held_out(
        self, seed: int = 1, *, evidence: bool = True, prior: Prior | None = None
    ) -> tuple[np.ndarray, bool]:
        """Return cross-validated P(correct) (n,), and whether the model would be served."""
        fold = stratified_folds(self.right, FOLDS, np.random.default_rng(seed))
        all_rows = np.ones(self.right.size, dtype=np.bool_)
        by_fold = [self.columns(fold != k, all_rows, evidence=evidence, prior=prior) for k in range(FOLDS)]
        fit = fit_correctness(by_fold[0], self.right, fold, by_fold=by_fold)
        assert fit.held_out is not None
        return fit.held_out, fit.model is not None


@cache
def recorded(name: str, kernel: Kernel = FACTS) -> Recorded:
    """Return the rows of one file, with all texts embedded."""
    return Recorded(name, embed=True, kernel=kernel)


@cache
def known_for(name: str, m: int, kernel: Kernel = FACTS) -> tuple[EvidenceMap, Prior]:
    """Return an evidence map fitted on the other file of the same LLM, and the prior made from it.

    m = 0: the map for one answer. The map is for at most the other file's number of samples.
    """
    other = recorded(OTHER[name], kernel)
    rows = other.material(min(max(m, 1), other.num_samples)).rows
    map_ = fit_evidence(rows).map
    theta = point_of(map_)
    return map_, Prior(theta, objective(rows, "evidence")(theta)[2], PRIOR_WEIGHT)
