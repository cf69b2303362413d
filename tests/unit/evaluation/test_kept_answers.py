"""Answers that an evaluation keeps: read back as they were, and as earlier releases wrote them."""

import json
from pathlib import Path

from service.evaluation.kept import AnswerFile
from service.llm.port import Draw

DRAWN_BY = {"model": "m"}


def test_they_come_back_with_their_log_probabilities(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    draws = (Draw("a", True, -0.5, -2.0, 4), Draw("", logprob=-1.0))
    AnswerFile(path).add("key", draws, DRAWN_BY, "m")
    assert AnswerFile(path).get("key") == draws


def test_those_of_earlier_releases_have_no_sums(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    line = {"key": "key", "drawn_by": DRAWN_BY, "answered_as": "m", "draws": [["a", False, -0.5]]}
    path.write_text(json.dumps(line) + "\n")
    kept = AnswerFile(path)
    kept.add("key", [Draw("b", False, -1.0, -1.0, 1)], DRAWN_BY, "m")
    assert AnswerFile(path).get("key") == (Draw("a", False, -0.5), Draw("b", False, -1.0, -1.0, 1))
