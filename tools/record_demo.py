"""Record the embedded model's answers to the bundled questions: `make record-devset` after `make run`.

    python -m tools.record_demo

They are drawn by the running service with its own settings, so that calibrating on them fits what it serves.
Run it again whenever those defaults change (model, few-shot text, sampling); a unit test says when.
"""

import json
import sys
from pathlib import Path
from typing import Any

import httpx
from rich.progress import track

from service.demo_data import DRAWN_WITH, QUESTIONS, RECORDED, drawn_with

TIMEOUT_S = 300


def record(http: httpx.Client, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the questions with the answers that the service draws; raises httpx.HTTPError."""
    return [row | {"samples": _samples(http, row["prompt"])} for row in track(questions, "Drawing answers")]


def _samples(http: httpx.Client, prompt: str) -> list[str]:
    response = http.post("/score", json={"prompt": prompt, "calibration": "none", "return": ["samples"]})
    response.raise_for_status()
    samples: list[str] = response.json()["samples"]
    return samples


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as JSONL."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def main() -> None:
    """Record from the service that this environment's settings describe."""
    from service.app.parts import build_llm, serving_of
    from service.cli import load_settings

    settings = load_settings()
    serving = serving_of(settings)
    questions = [json.loads(line) for line in QUESTIONS.read_text("utf-8").splitlines()]
    with httpx.Client(
        base_url=f"http://{settings.host}:{settings.port}", timeout=TIMEOUT_S, trust_env=False
    ) as http:
        try:
            rows = record(http, questions)
        except httpx.HTTPError as error:
            sys.exit(f"The service did not answer ({error}). Is it running? make run")
    write_rows(RECORDED, rows)
    identity = build_llm(settings).identity(serving.request(prompt="x"))
    kept = drawn_with(identity, serving.sampling) | {"num_samples": serving.num_samples}
    DRAWN_WITH.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
