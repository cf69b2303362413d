"""Reports of small synthetic worlds, made by the real pipeline, once for each process."""

from copy import deepcopy
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import numpy as np

from lab.experiments import Evaluation, make_results
from lab.resampling import Resamples
from lab.vectors import Answers, overlaps
from service.calibration.calibration import Calibration, Fingerprint, service_fingerprint
from service.calibration.diagnostics import CrossValidated
from service.calibration.fitting import Fitted, fit_all
from service.calibration.labels import LabelledRows
from service.calibration.material import DevSet
from service.calibration.promotion import promote
from service.calibration.rows import DevRow
from service.embedding.port import EmbedderIdentity
from service.jobs.model import JobOptions
from service.llm.prompt import LLMIdentity, Sampling
from service.llm.samples import Draw
from service.report.report import make_report
from tests.support import decisions, evidence, worlds
from tests.support.decisions import TARGET

ROWS, SAMPLES, DIMENSION, MEANINGS = 120, 6, 16, 4
FEW = Resamples(*[20] * 7)  # the minimum for a band
MADE_AT = datetime(2026, 11, 1, 12, 30, tzinfo=UTC)


def small_report(*, with_active: bool = False) -> dict[str, Any]:
    """Return a copy of a report with three maps, and optionally a previously active calibration."""
    return _sent(_small_report(with_active))


def deciding_report() -> dict[str, Any]:
    """Return a copy of a report with enough verdicts for a model of P(correct)."""
    return _sent(_deciding_report())


def evidence_report() -> dict[str, Any]:
    """Return a copy of a report from a world in which the evidence map is the best."""
    return _sent(_evidence_report())


def evaluation_results() -> dict[str, Any]:
    """Return a copy of results with all experiments."""
    return deepcopy(_evaluation())


def one_class_report(right: bool) -> dict[str, Any]:
    """Return a copy of a report of rows with all answers right, or all wrong."""
    return _sent(_one_class_report(right))


def _sent(report: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a report as the route sends it."""
    return deepcopy(report) | {"now": {"active": False, "activated_at": None}, "verdicts": None}


@cache
def _evidence_report() -> dict[str, Any]:
    material = evidence.material(evidence.drawn())
    fitted = fit_all(LabelledRows(material), "auto")
    made = _calibration(fitted, evidence.SAMPLES, evidence="token_sums")
    return _reported(fitted, made, evidence.ROWS)


@cache
def _deciding_report() -> dict[str, Any]:
    material = decisions.judged_material(decisions.judged_rows(300))
    fitted = fit_all(LabelledRows(material), "auto")
    made = _calibration(fitted, 4)
    return _reported(fitted, made, 300)


@cache
def _one_class_report(right: bool) -> dict[str, Any]:
    rows = [replace(row, correct=right) for row in decisions.judged_rows(120)]
    fitted = fit_all(LabelledRows(decisions.judged_material(rows)), "depolarized")
    return _reported(fitted, _calibration(fitted, 4), len(rows))


def report_of(rows: LabelledRows, seed: int) -> dict[str, Any]:
    """Return the report of a fit of `depolarized` with a seed."""
    fitted = fit_all(rows, "depolarized", seed=seed)
    return _reported(fitted, _calibration(fitted, rows.material.num_samples), len(rows), seed=seed)


def _reported(
    fitted: Fitted, made: Calibration, rows: int, active: Calibration | None = None, seed: int = 0
) -> dict[str, Any]:
    context = CrossValidated(fitted, seed=seed, resamples=FEW)
    promotion = promote(
        made,
        active,
        fitted,
        context,
        asked=JobOptions().activate,
        target_error=TARGET.error,
        confidence=TARGET.confidence,
        num_rows=rows,
    )
    return make_report(fitted, made, context, promotion, TARGET, num_rows=rows)


@cache
def _small_report(with_active: bool) -> dict[str, Any]:
    material = small_material()
    active = _calibration(fit_all(LabelledRows(material), "temperature")) if with_active else None
    fitted = fit_all(LabelledRows(material), "depolarized", active=active)
    return _reported(fitted, _calibration(fitted), ROWS + 2, active)


@cache
def _evaluation() -> dict[str, Any]:
    dev, test = (worlds.split(worlds.rows(count, seed=seed)) for count, seed in ((40, 1), (45, 2)))
    return make_results(Evaluation(dev, test, worlds.vectors(test), resamples=FEW), (40, 45), origin())


def origin() -> dict[str, Any]:
    """Return the origin of the results."""
    files: dict[str, Any] = {
        name: {"name": f"{name}.jsonl", "sha256": digit * 64, "answers_from": "file"}
        for name, digit in (("dev", "0"), ("test", "1"))
    }
    return {
        "version": "1.2.3",
        "created_at": MADE_AT.isoformat(timespec="seconds"),
        "eps": 1e-10,
        "files": files,
        "answers": None,
        "embedder": asdict(EmbedderIdentity("<b>an</b>/embedder", "r1", 24, "float32")),
    }


def small_material() -> DevSet:
    """Return the rows of a small report as vectors."""
    rng = np.random.default_rng(7)
    axes = np.eye(DIMENSION)[:MEANINGS]
    rows, answers, texts = [], [], []
    for i in range(ROWS):
        leading = rng.integers(MEANINGS)
        shares = rng.dirichlet(np.full(MEANINGS, 0.5)) * 0.5
        shares[leading] += 0.5
        drawn, reference = rng.choice(MEANINGS, SAMPLES, p=shares), rng.choice(MEANINGS, p=shares)
        distinct, index = np.unique(drawn, return_inverse=True)
        answers.append(overlaps(Answers(_unit(axes[distinct], rng), index, _unit(axes[[reference]], rng))))
        texts.append([f"meaning {k}" for k in distinct])
        rows.append(_row(i, drawn, f"meaning {reference}", bool(reference == leading)))
    return DevSet(rows, answers, texts, np.arange(ROWS), SAMPLES, DIMENSION, [None] * ROWS)


def _unit(vectors: Any, rng: np.random.Generator) -> Any:
    blurred = vectors + 0.15 * rng.normal(size=vectors.shape)
    return (blurred / np.linalg.norm(blurred, axis=1, keepdims=True)).astype(np.float32)


def _row(i: int, drawn: Any, reference: str, correct: bool) -> DevRow:
    samples = tuple(f"meaning {k}" for k in drawn)
    row = DevRow(i + 1, f"r{i}", (reference,), prompt=f"question {i}", samples=samples, correct=correct)
    return replace(row, draws=tuple(Draw(text) for text in samples), complete=True)


def _fingerprint(evidence: str) -> Fingerprint:
    llm = LLMIdentity("a/model", "completions", "0123456789abcdef")
    embedder = EmbedderIdentity("an/embedder", "r1", DIMENSION, "float32")
    return replace(service_fingerprint(llm, Sampling(stop=("\n",)), embedder), evidence=evidence)


def _calibration(fitted: Fitted, num_samples: int = SAMPLES, *, evidence: str = "") -> Calibration:
    return Calibration(
        "cal_00000000000000000000000000",
        fitted.method,
        _fingerprint(evidence),
        num_samples,
        fitted.parameters,
        MADE_AT,
        name="Small world",
        evidence=fitted.evidence_table,
        selectors=fitted.selectors() if num_samples != SAMPLES else {},
    )
