"""Bundled questions of our own, with recorded answers of the embedded model.

`make run` calibrates on everyday questions, `QUESTIONS` or `RECORDED`. The README calibrates on `PLACES`,
questions about cities, continents and capitals.
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
    """Return the parameters that determine the distribution of answers, in the format of `DRAWN_WITH`."""
    parameters = {name: value for name, value in asdict(sampling).items() if name != "seed"}
    return llm.parts() | {"sampling": parameters | {"stop": list(sampling.stop)}}


def recorded_fit(llm: LLMIdentity, sampling: Sampling, num_samples: int) -> bool:
    """Return True if the recorded answers have this set-up and `num_samples` answers or more each."""
    recorded = json.loads(DRAWN_WITH.read_text())
    return bool(num_samples <= recorded.pop("num_samples")) and recorded == drawn_with(llm, sampling)
