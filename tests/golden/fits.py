"""Calibrations fitted on recorded rows: what they were before a change of the calibration side.

    python -m tests.golden.fits

records them in fits.json.gz: maps, held-out P(correct), thresholds, promises, the recommended number of
answers and the activation, without texts. Needs ../shared/data. The embedder is made up, so that no weights
take part.
"""

import asyncio
import gzip
import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.recorded_evidence import DATA, EVERYDAY, P_TRUE, QWEN, TEST, own_logprob, references_of
from service.calibration.calibration import Calibration, service_fingerprint
from service.calibration.diagnostics import CrossValidated
from service.calibration.fitting import Stream, curvatures, fit_all, rng
from service.calibration.labels import LabelledRows
from service.calibration.material import (
    all_texts,
    assemble,
    claim_material,
    claim_texts,
    sentences_of,
    usable_rows,
)
from service.calibration.promotion import promote
from service.calibration.rows import ClaimIn, DevRow
from service.embedding.port import FACTS
from service.llm.prompt import LLMIdentity, Sampling
from service.llm.samples import Draw
from service.spectral.resampling import Resamples
from service.spectral.selective import promise
from tests.golden.scores import CHECKED_BY, DIMENSION, Words
from tests.support.decisions import TARGET

KEPT = Path(__file__).with_name("fits.json.gz")
NUMBERS = (0, 1, 2, 3, 5, 10)  # numbers of answers that are recorded
RESAMPLES = Resamples(100, 100, 100, 100)
MADE_AT = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Case:
    """A calibration. rival: case of the active one; known: case of the one on bundled questions.

    has_answers: rows have an `answer` of their own, which is judged. has_claims: that answer and another
    row's are judged as claims. copies: rows that ask again.
    """

    file: str
    method: str = "auto"
    num_samples: int = 10
    num_rows: int = 1000
    has_logprobs: bool = True
    is_checked: bool = False
    has_answers: bool = True
    has_claims: bool = False
    copies: int = 0
    rival: str = ""
    known: str = ""


CASES: Mapping[str, Case] = {
    "hard questions": Case(QWEN),
    "hard, self-checks": Case(QWEN, num_samples=5, is_checked=True),
    "hard, both without log-probabilities": Case(QWEN, "both", has_logprobs=False),
    "hard, temperature": Case(QWEN, "temperature", num_samples=5),
    "hard, depolarized, dominant answer judged": Case(QWEN, "depolarized", 5, has_answers=False),
    "easy questions": Case(EVERYDAY, num_samples=5),
    "easy, self-checks": Case(EVERYDAY, num_samples=5, is_checked=True),
    "easy, a rival": Case(EVERYDAY, num_samples=5, rival="small LLM"),
    "easy, thirty rows of a known LLM": Case(
        EVERYDAY, num_samples=5, num_rows=30, is_checked=True, known="hard, self-checks"
    ),
    "easy, known LLM": Case(EVERYDAY, num_samples=5, is_checked=True, known="hard, self-checks"),
    "easy, near copies": Case(EVERYDAY, num_samples=3, copies=20),
    "hard, claims": Case(QWEN, num_samples=5, has_claims=True),
    "small LLM": Case(TEST, num_samples=5, num_rows=200),
}


def stored(case: Case) -> list[DevRow]:
    """Return the rows of a case as a job has them."""
    lines = (DATA / f"{case.file}.jsonl").read_text("utf-8").splitlines()[: case.num_rows]
    made = []
    for number, row in enumerate(map(json.loads, lines), start=1):
        totals = row["logprob"] if case.has_logprobs else [None] * len(row["samples"])
        draws = tuple(Draw(text, total_logprob=one) for text, one in zip(row["samples"], totals, strict=True))
        one = DevRow(
            number,
            None,
            references_of(row),
            prompt=row["prompt"],
            answer=row["answer"] if case.has_answers else None,
            answer_logprob=own_logprob(row) if case.has_answers and case.has_logprobs else None,
            correct=row.get("correct") if case.has_answers else None,
        )
        if case.has_claims:
            other = json.loads(lines[number % len(lines)])["answer"]
            verdicts = {row["answer"]: row["correct"], other: False}
            one = replace(one, claims=tuple(ClaimIn(text=t, correct=c) for t, c in verdicts.items()))
        made.append(replace(one, draws=draws, complete=True))
    again = [replace(row, line=len(made) + row.line) for row in made[: case.copies]]
    return [*made, *again]


def labelled(case: Case) -> LabelledRows:
    """Return the rows of a case with verdicts, spectra and self-checks."""
    rows, num_samples, _ = usable_rows(stored(case), case.num_samples, rng(0, Stream.COPIES))
    embedder, sentences = Words(DIMENSION, kernel=FACTS), [sentences_of(row) for row in rows]
    texts = claim_texts(rows, sentences) if case.has_claims else all_texts(rows, FACTS)
    vectors = asyncio.run(embedder.embed(texts)).vectors
    if case.has_claims:
        by_text = dict(zip(texts, vectors, strict=True))
        return LabelledRows(claim_material(rows, sentences, by_text, num_samples, DIMENSION))
    place = {text: i for i, text in enumerate(texts)}
    found = LabelledRows(assemble(rows, num_samples, vectors, place, DIMENSION, FACTS))
    if case.is_checked:
        known = json.loads((DATA / f"{P_TRUE[case.file]}.json").read_text("utf-8"))
        to_check = found.texts_to_check()
        found.p_true = [dict.fromkeys(of, known[found.row(i).line - 1]) for i, of in enumerate(to_check)]
        found.checked_by = CHECKED_BY
    return found


@cache
def fitted(name: str) -> tuple[Calibration, dict[str, Any]]:
    """Return the calibration of a case, and what is recorded of it."""
    case = CASES[name]
    rows = labelled(case)
    active = fitted(case.rival)[0] if case.rival else None
    known = replace(fitted(case.known)[0], origin="bundled") if case.known else None
    fits = fit_all(rows, case.method, active=known or active, known=known)
    fingerprint = service_fingerprint(
        LLMIdentity("a/model", "chat", "0123456789abcdef"), Sampling(), Words(DIMENSION).identity
    )
    is_known = any(other.known == name for other in CASES.values())
    made = Calibration(
        name,
        fits.method,
        replace(fingerprint, self_check=rows.checked_by),
        rows.material.num_samples,
        fits.parameters,
        MADE_AT,
        evidence=fits.evidence_table,
        selectors=fits.selectors(),
        origin=fits.origin,
        curvatures=curvatures(rows) if is_known else {},
        judged={m: point.judged for m, point in fits.decided.items()} if is_known else {},
    )
    promoted = promote(
        made,
        known or active,
        fits,
        CrossValidated(fits, resamples=RESAMPLES),
        asked="if_better",
        target_error=TARGET.error,
        confidence=TARGET.confidence,
        num_rows=len(rows),
    )
    points = {m: point for m, point in fits.decided.items() if m in NUMBERS}
    return made, {
        "rows": len(rows),
        "method": fits.method,
        "risks": {method: float(risks.mean()) for method, risks in fits.maps.risks.items()},
        "maps": {str(m): None if point.map is None else astuple(point.map) for m, point in points.items()},
        "held_out": {
            str(m): None if point.fit.held_out is None else point.fit.held_out.round(9).tolist()
            for m, point in points.items()
        },
        "counts": {
            str(m): None if point.selector is None else astuple(point.selector.counts)
            for m, point in points.items()
        },
        "promises": {
            str(m): promise(point.selector.counts, TARGET.error, TARGET.confidence).threshold
            for m, point in points.items()
            if point.selector is not None
        },
        "activated": promoted.activated,
        "reason": promoted.reason,
        "recommended": promoted.num_samples,
        "improvement": [astuple(getattr(promoted.improvement, gap)) for gap in ("risk", "brier", "loss")],
    }


def main() -> None:
    found = {name: fitted(name)[1] for name in CASES}
    KEPT.write_bytes(gzip.compress(json.dumps(found, separators=(",", ":")).encode(), mtime=0))


if __name__ == "__main__":
    main()
