"""Bundled questions of our own making, with the embedded model's recorded answers.

`QUESTIONS` and `RECORDED` are everyday questions, which `make run` calibrates on. `PLACES` are other
questions, on cities, continents and capitals, which README calibrates on.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from service.llm.port import LLMIdentity, Sampling

FOLDER = Path(__file__).parent
QUESTIONS = FOLDER / "everyday_questions.jsonl"
RECORDED = FOLDER / "everyday_recorded.jsonl"
PLACES = FOLDER / "places.jsonl"
DRAWN_WITH = FOLDER / "drawn_with.json"


def drawn_with(llm: LLMIdentity, sampling: Sampling) -> dict[str, Any]:
    """Return what decides the distribution of answers, as kept beside the recorded ones."""
    parameters = {name: value for name, value in asdict(sampling).items() if name != "seed"}
    return llm.parts() | {"sampling": parameters | {"stop": list(sampling.stop)}}


def recorded_fit(llm: LLMIdentity, sampling: Sampling, num_samples: int) -> bool:
    """Tell whether a service set up like this could have drawn the recorded answers, and as many."""
    kept = json.loads(DRAWN_WITH.read_text())
    return bool(num_samples <= kept.pop("num_samples")) and kept == drawn_with(llm, sampling)
