"""Questions of our own with recorded answers of the demonstration's LLM, and its prompt.

`RECORDED`: everyday questions, for examples. `PLACES`: questions about cities, continents and capitals, on
which the README calibrates.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
RECORDED = FOLDER / "everyday_recorded.jsonl"
PLACES = FOLDER / "places.jsonl"
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
