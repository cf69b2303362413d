"""Domain objects to what the columns hold, and back."""

import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from sqlalchemy.engine import RowMapping

from service.calibration.calibration import Calibration, Decider, Parameters
from service.embedding.outcomes import totals
from service.jobs.model import CalibrateOptions, DevRow, Job, JobError, Verdict
from service.jobs.store import StoredRow
from service.llm.port import OUTCOME, Draw, Fingerprint, Message
from service.spectral.conformal import ConformalReference
from service.spectral.evidence import EvidenceMap


def encode_row(row: DevRow) -> dict[str, Any]:
    """Return the JSON of a row, without the answers, which have a column of their own."""
    content = asdict(row)
    del content["samples"], content["logprobs"], content["line"], content["verdict"]
    return content | {"supplied": row.samples is not None}


def encode_draws(draws: Sequence[Draw]) -> list[list[Any]]:
    """Return the JSON of answers in order."""
    return [[d.text, d.truncated, d.logprob, d.total_logprob, d.num_tokens] for d in draws]


def decode_draws(values: list[list[Any]]) -> tuple[Draw, ...]:
    """Return the answers; those kept by earlier releases have three values, and no total."""
    return tuple(Draw(text, bool(truncated), *more) for text, truncated, *more in values)


def _messages(values: list[dict[str, Any]] | None) -> tuple[Message, ...] | None:
    return None if values is None else tuple(Message(**value) for value in values)


def decode_row(found: RowMapping) -> StoredRow:
    """Return a stored row; its `samples` are those it was uploaded with."""
    content = found["content"]
    draws = decode_draws(found["draws"])
    row = DevRow(
        line=found["line"],
        id=content["id"],
        references=tuple(content["references"]),
        prompt=content["prompt"],
        messages=_messages(content["messages"]),
        samples=tuple(d.text for d in draws) if content["supplied"] else None,
        logprobs=totals(draws) if content["supplied"] else None,
        answer=content["answer"],
        correct=content["correct"],
        verdict=None if found["verdict"] is None else Verdict(**found["verdict"]),
    )
    return StoredRow(row, draws, bool(found["complete"]), found["refused"])


def encode_fingerprint(fingerprint: Fingerprint) -> dict[str, Any]:
    """Return the JSON of a fingerprint, without what earlier releases do not know where it says nothing."""
    body = asdict(fingerprint)
    if fingerprint.empty_answers == OUTCOME:
        del body["empty_answers"]
    if not fingerprint.evidence:
        del body["evidence"]
    return body


def decode_fingerprint(value: dict[str, Any] | None) -> Fingerprint | None:
    """Return a fingerprint, None for none."""
    return None if value is None else Fingerprint(**value)


def decode_options(value: dict[str, Any]) -> CalibrateOptions:
    """Return the options of a job."""
    return CalibrateOptions(**value)


def decode_job(found: RowMapping) -> Job:
    """Return a job as the API shows it."""
    error = JobError(found["error_code"], found["error_detail"]) if found["error_code"] else None
    return Job(
        id=found["id"],
        kind=found["kind"],
        state=found["state"],
        created_at=found["created_at"],
        name=found["options"]["name"],
        stage=found["stage"],
        done=found["done"],
        total=found["total"],
        eta_s=found["eta_s"],
        note=found["note"],
        error=error,
        calibration_id=found["calibration_id"],
        activated=found["activated"],
        decision=found["decision"],
        refused_rows=found["refused_rows"],
        started_at=found["started_at"],
        finished_at=found["finished_at"],
    )


def encode_calibration(calibration: Calibration) -> dict[str, Any]:
    """Return the JSON of what a calibration is, other than its id and time."""
    evidence = {str(m): asdict(found) for m, found in sorted(calibration.evidence.items())}
    deciders = {str(m): one.stored() for m, one in sorted(calibration.deciders.items())}
    return {
        "method": calibration.method,
        "fingerprint": encode_fingerprint(calibration.fingerprint),
        "num_samples": calibration.num_samples,
        "parameters": {str(m): asdict(p) for m, p in sorted(calibration.parameters.items())},
        "eps": calibration.eps,
        "name": calibration.name,
        **({"evidence": evidence} if evidence else {}),
        **({"deciders": deciders} if deciders else {}),
    }


def encode_reference(reference: ConformalReference) -> bytes:
    """Return the bytes of what a calibration's rows are like: arrays as numpy keeps them."""
    file = io.BytesIO()
    np.savez(file, questions=reference.questions, lengths=reference.lengths)
    return file.getvalue()


def _reference(content: bytes | None) -> ConformalReference | None:
    if content is None:
        return None
    with np.load(io.BytesIO(content)) as kept:
        return ConformalReference(kept["questions"], kept["lengths"])


def decode_calibration(found: RowMapping) -> Calibration:
    """Return a calibration; its reference where the query has read it as `reference`."""
    body = found["body"]
    return Calibration(
        id=found["id"],
        method=body["method"],
        fingerprint=Fingerprint(**body["fingerprint"]),
        num_samples=body["num_samples"],
        parameters={int(m): Parameters(**p) for m, p in body["parameters"].items()},
        created_at=found["created_at"],
        eps=body["eps"],
        name=body["name"],
        # Both are absent from calibrations without them, and from all of earlier releases.
        evidence={int(m): EvidenceMap(**found) for m, found in body.get("evidence", {}).items()},
        deciders={int(m): Decider.of(one) for m, one in body.get("deciders", {}).items()},
        reference=_reference(found.get("reference")),
    )
