"""Answers that an evaluation keeps: read back as they were, whatever crash cut the last line."""

from pathlib import Path

import pytest

from service.errors import Conflict
from service.evaluation.kept import AnswerFile
from service.llm.port import Draw

DRAWS = (Draw("a", True, -0.5, -2.0, 4), Draw("", logprob=-1.0))
Setups = dict[str, dict[str, float]]
WARM, COOL = ({"prompt": {"sampling.temperature": one}} for one in (0.9, 0.5))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "answers.jsonl"


def test_they_come_back_with_their_log_probabilities_and_their_set_up(path: Path) -> None:
    file = AnswerFile(path)
    file.agree("", COOL)
    file.add("key", DRAWS, "m", "m-1")
    again = AnswerFile(path)
    assert again.get("key") == DRAWS
    assert (again.model, again.answered_as, again.setups) == ("m", "m-1", COOL)


def test_a_line_cut_by_a_crash_is_dropped_and_the_next_is_whole(path: Path) -> None:
    AnswerFile(path).add("key", DRAWS, "m", "m")
    path.write_bytes(path.read_bytes() + b'{"key": "cut by a cra')
    file = AnswerFile(path)
    assert file.get("key") == DRAWS
    file.add("other", DRAWS[:1], "m", "m")
    assert AnswerFile(path).get("other") == DRAWS[:1]


@pytest.mark.parametrize(("model", "setups"), [("other", COOL), ("m", WARM)])
def test_those_drawn_otherwise_are_refused(
    path: Path, model: str, setups: dict[str, dict[str, float]]
) -> None:
    file = AnswerFile(path)
    file.agree("m", COOL)
    file.add("key", DRAWS, "m", "m")
    with pytest.raises(Conflict, match="--anew"):
        AnswerFile(path).agree(model, setups)
    with pytest.raises(Conflict, match="answered_as was 'm', now 'm-2'"):
        AnswerFile(path).add("key", DRAWS, "m", "m-2")
