"""Record the demonstration LLM's answers to the example questions: `make record-devset` after `make run`.

    python -m tools.record_demo

The running service samples the answers with its own settings, in a calibration that is not activated, and
exports them with their log-probabilities. Run it again when the defaults change (model, template, sampling).
"""

import json
import sys
import threading
from pathlib import Path
from typing import Any

import httpx2 as httpx

from demo.data import PLACES, RECORDED
from demo.tour import set_defaults

NUM_SAMPLES = 20
TIMEOUT_S = 300
LONGEST_S = 3600.0  # of sampling; a busy machine needs minutes
POLL_S = 0.5
DIGITS = (
    4  # decimals of a log-probability; all of them would triple the file without changing any figure shown
)


def record(http: httpx.Client, questions: bytes, num_samples: int = NUM_SAMPLES) -> list[dict[str, Any]]:
    """Return the rows of a dev file with the service's answers. Raises httpx.HTTPError."""
    form = {"name": "recorded", "activate": "never", "num_samples": str(num_samples)}
    job = _json(http.post("/calibrate", data=form, files={"file": ("questions.jsonl", questions)}))
    calibration = _ended(http, job["id"])["calibration_id"]
    kept = http.get(f"/calibrations/{calibration}/data").raise_for_status().text
    return [_shortened(json.loads(line)) for line in kept.splitlines()]


def _ended(http: httpx.Client, job_id: str) -> dict[str, Any]:
    pause = threading.Event()  # never set: its wait is the pause
    for _ in range(int(LONGEST_S / POLL_S)):
        job = _json(http.get(f"/jobs/{job_id}"))
        if job["state"] not in ("queued", "running"):
            break
        pause.wait(POLL_S)
    if job["state"] != "succeeded":
        sys.exit(
            f"The job {job_id} is {job['state']}: {(job['error'] or {}).get('detail', 'no reason given')}"
        )
    return job


def _json(response: httpx.Response) -> dict[str, Any]:
    body: dict[str, Any] = response.raise_for_status().json()
    return body


def _shortened(row: dict[str, Any]) -> dict[str, Any]:
    kept = {name: row[name] for name in ("id", "prompt", "reference", "samples")}
    return kept | {"logprobs": [round(value, DIGITS) for value in row["logprobs"]]}


def without_answers(recorded: str) -> bytes:
    """Return the rows of a recorded dev file with only their questions and references."""
    rows = [json.loads(line) for line in recorded.splitlines()]
    bare = [{name: row[name] for name in ("id", "prompt", "reference")} for row in rows]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in bare).encode()


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as JSONL."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def main() -> None:
    """Record answers of the service described by the settings of this environment."""
    from service.cli import load_settings

    set_defaults()
    settings = load_settings()
    with httpx.Client(
        base_url=f"http://{settings.host}:{settings.port}", timeout=TIMEOUT_S, trust_env=False
    ) as http:
        try:
            for path in (RECORDED, PLACES):
                write_rows(path, record(http, without_answers(path.read_text("utf-8"))))
        except httpx.HTTPError as error:
            sys.exit(f"The service did not answer ({error}). Is it running? make run")


if __name__ == "__main__":
    main()
