"""A score in the service's format, and its line in a batch."""

import json

SCORE = {
    "id": "scr_1", "answer": "Eight", "lambda_max": 0.9, "entropy": 0.1, "entropy_normalized": 0.1,
    "calibrated": False, "uncalibrated": {"lambda_max": 0.9, "entropy": 0.1}, "calibration": None,
    "evidence": None, "candidate": None, "self_check": None, "probability_correct": None, "decision": None,
    "warnings": [], "model": None, "embedder": "e", "num_samples": 2, "num_distinct": 1, "num_truncated": 0,
    "num_empty": 0, "num_refusals": 0, "ood_p_value": None,
    "usage": None, "timings_ms": {"queue": 0, "embed": 0, "spectrum": 0, "total": 0},
}  # fmt: skip


def line(index: int, **score: object) -> bytes:
    """Return the line of an item."""
    return json.dumps({"index": index, "result": SCORE | score}, ensure_ascii=False).encode() + b"\n"
