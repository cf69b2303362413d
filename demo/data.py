"""Bundled questions of our own, with recorded answers of the demonstration's LLM.

`make run` calibrates on everyday questions, `QUESTIONS` or `RECORDED`. The README calibrates on `PLACES`,
questions about cities, continents and capitals.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from service.llm.port import LLMIdentity, Sampling
from service.settings import Settings

FOLDER = Path(__file__).parent
QUESTIONS = FOLDER / "everyday_questions.jsonl"
RECORDED = FOLDER / "everyday_recorded.jsonl"
PLACES = FOLDER / "places.jsonl"
DRAWN_WITH = FOLDER / "drawn_with.json"
# Everyday questions with short answers, which make a small base-like model answer briefly. Answers end at a
# newline, so requests with this text should stop there.
FEW_SHOT = """\
Q: What colour is a ripe banana?
A: Yellow
Q: How many days are there in a week?
A: Seven
Q: What is the capital of Italy?
A: Rome
Q: Which animal says meow?
A: The cat
Q: Who wrote the play Hamlet?
A: William Shakespeare
Q: What do bees make?
A: Honey
"""


def drawn_with(llm: LLMIdentity, sampling: Sampling) -> dict[str, Any]:
    """Return the parameters that determine the distribution of answers, in the format of `DRAWN_WITH`."""
    parameters = {name: value for name, value in asdict(sampling).items() if name != "seed"}
    return llm.parts() | {"sampling": parameters | {"stop": list(sampling.stop)}}


def recorded_answers_fit(settings: Settings) -> bool:
    """Return True if the recorded answers are as the settings draw them, and enough for each question.

    Raises ValueError for an invalid template or regex.
    """
    from service.app import build_llm, serving_of

    serving = serving_of(settings)
    identity = build_llm(settings).identity(serving.request(prompt="x"))
    recorded = json.loads(DRAWN_WITH.read_text())
    has_enough = serving.num_samples <= recorded.pop("num_samples")
    return bool(has_enough) and recorded == drawn_with(identity, serving.sampling)
