"""Reports of small synthetic calibrations, made by the real pipeline."""

import copy
import functools
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from service.calibration.calibration import CalibrateOptions, Calibration
from service.calibration.fingerprint import Fingerprint, service_fingerprint
from service.calibration.fitting import Fitted, fit_all
from service.calibration.material import Material
from service.calibration.rows import DevRow, StoredRow
from service.embedding.port import EmbedderIdentity
from service.llm.port import Draw, LLMIdentity, Sampling
from service.report.model import Report
from service.report.report import FinishedFit, make_report
from service.spectral.dev_set import Answers
from tests.support import decisions, evidence
from tests.support.decisions import TARGET

ROWS, SAMPLES, DIMENSION, MEANINGS = 120, 6, 16, 4


def small_report(
    method: str = "depolarized", *, with_active: bool = False, right: bool | None = None
) -> Report:
    """Return a report of its own. right: the label of every answer; None: right and wrong ones."""
    return copy.deepcopy(_report(method, with_active, right))


def evidence_report(*, tells: bool = True) -> Report:
    """Return a report of its own, of a world where the evidence map is the best. tells: whether rows do."""
    return copy.deepcopy(_evidence_report(tells))


@functools.cache
def _evidence_report(tells: bool) -> Report:
    told = evidence.material(evidence.drawn(tells=tells))
    fitted = fit_all(told, "auto")
    made = replace(
        _calibration(fitted),
        num_samples=evidence.SAMPLES,
        evidence=fitted.evidence_table,
        fingerprint=replace(_fingerprint(), evidence="token_sums" if tells else ""),
    )
    return make_report(FinishedFit(made, CalibrateOptions(), told, fitted, None, evidence.ROWS, TARGET))


def deciding_report(count: int = 300, *, logprobs: bool = True) -> Report:
    """Return a report of its own, of rows whose verdicts allow a model of being right."""
    return copy.deepcopy(_deciding_report(count, logprobs))


@functools.cache
def _deciding_report(count: int, logprobs: bool) -> Report:
    material = decisions.judged_material(decisions.judged_rows(count, logprobs=logprobs))
    fitted = fit_all(material, "auto")
    made = replace(
        _calibration(fitted),
        num_samples=4,
        evidence=fitted.evidence_table,
        deciders=fitted.decided.deciders(),
    )
    return make_report(FinishedFit(made, CalibrateOptions(), material, fitted, None, count, TARGET))


@functools.cache
def _report(method: str, with_active: bool, right: bool | None) -> Report:
    material = small_material(right)
    active = _calibration(fit_all(material, "temperature")) if with_active else None
    fitted = fit_all(material, method, active=active)
    outcome = FinishedFit(
        _calibration(fitted), CalibrateOptions(), material, fitted, active, ROWS + 2, TARGET
    )
    return make_report(outcome)


def small_material(right: bool | None = None) -> Material:
    """Return the rows of a small report as vectors."""
    rng = np.random.default_rng(7)
    axes = np.eye(DIMENSION)[:MEANINGS]
    rows, answers, texts = [], [], []
    for i in range(ROWS):
        leading = rng.integers(MEANINGS)
        shares = rng.dirichlet(np.full(MEANINGS, 0.5)) * 0.5
        shares[leading] += 0.5
        said, reference = rng.choice(MEANINGS, SAMPLES, p=shares), rng.choice(MEANINGS, p=shares)
        found, index = np.unique(said, return_inverse=True)
        answers.append(Answers(_unit(axes[found], rng), index, _unit(axes[[reference]], rng)))
        texts.append([f"meaning {k}" for k in found])
        rows.append(
            _row(i, said, f"meaning {reference}", bool(reference == leading) if right is None else right)
        )
    return Material(rows, answers, texts, np.arange(ROWS), SAMPLES, DIMENSION)


def _unit(vectors: Any, rng: np.random.Generator) -> Any:
    blurred = vectors + 0.15 * rng.normal(size=vectors.shape)
    return (blurred / np.linalg.norm(blurred, axis=1, keepdims=True)).astype(np.float32)


def _row(i: int, said: Any, reference: str, correct: bool) -> StoredRow:
    samples = tuple(f"meaning {k}" for k in said)
    row = DevRow(i + 1, f"r{i}", (reference,), prompt=f"question {i}", samples=samples, correct=correct)
    return StoredRow(row, tuple(Draw(text) for text in samples), complete=True)


def _fingerprint() -> Fingerprint:
    llm = LLMIdentity("a/model", "completions", "0123456789abcdef")
    return service_fingerprint(
        llm, Sampling(stop=("\n",)), EmbedderIdentity("an/embedder", "r1", DIMENSION, "float32")
    )


def _calibration(fitted: Fitted) -> Calibration:
    made = datetime(2026, 11, 1, 12, 30, tzinfo=UTC)
    name = "cal_00000000000000000000000000"
    return Calibration(
        name, fitted.method, _fingerprint(), SAMPLES, fitted.parameters, made, name="Small world"
    )
