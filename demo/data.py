"""Bundled questions of our own, with recorded answers of the demonstration's LLM.

`make run` calibrates on everyday questions, `QUESTIONS` or `RECORDED`. The README calibrates on `PLACES`,
questions about cities, continents and capitals.
"""

import json
from pathlib import Path
from typing import Any

from service.settings import Settings

FOLDER = Path(__file__).parent
QUESTIONS = FOLDER / "everyday_questions.jsonl"
RECORDED = FOLDER / "everyday_recorded.jsonl"
PLACES = FOLDER / "places.jsonl"
DRAWN_WITH = FOLDER / "drawn_with.json"
# Everyday questions with short answers, after which a small model answers briefly. Answers end at a newline.
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
PROMPT_TEMPLATE = f"{FEW_SHOT}Q: {{prompt}}\nA:"
# Settings that determine the distribution of answers.
DRAWING = (
    "llm_model",
    "llm_api",
    "system_prompt",
    "prompt_template",
    "sampling_temperature",
    "top_p",
    "top_k",
    "max_tokens",
    "stop",
)


def drawn_with(settings: Settings) -> dict[str, Any]:
    """Return the settings that determine the distribution of answers, in the format of `DRAWN_WITH`."""
    return {name: getattr(settings, name) for name in DRAWING}


def recorded_answers_fit(settings: Settings) -> bool:
    """Return True if the recorded answers were drawn with these settings and suffice for `num_samples`."""
    recorded = json.loads(DRAWN_WITH.read_text())
    has_enough = settings.num_samples <= recorded.pop("num_samples")
    return bool(has_enough) and recorded == drawn_with(settings)
