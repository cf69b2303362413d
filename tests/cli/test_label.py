"""Judging answers on the command line, and calibrating on the verdicts."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Here
from tests.support.openai_server import OpenAIServer, answers
from tests.support.services import NUM_SAMPLES


def verdicts(path: Path) -> list[tuple[str, bool]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(row["answer"] for row in rows)
    return [(row["prompt"], row["correct"]) for row in rows]


def test_ten_typed_questions_make_a_calibration(here: Here, tmp_path: Path) -> None:
    typed = [f"my question {i}\n{'y' if i % 3 else 'n'}\n" for i in range(10)]
    done = here("label", stdin="".join([*typed, "\n"]))
    assert done.code == 0, done.err
    assert "Question 10 of 10" in done.err and "Question (empty: calibrate)" in done.err
    # Click's runner echoes on stdout what is typed.
    decision, heading, *moved = done.out.splitlines()[-12:]
    assert "ctivated" in decision
    assert heading == "P(correct) before and after:" and len(moved) == 10
    assert moved[0].endswith("my question 0")
    labelled = verdicts(tmp_path / "labelled.jsonl")
    assert labelled == [(f"my question {i}", i % 3 > 0) for i in range(10)]
    [job, *_] = here("jobs", "--json").json
    assert (job["name"], job["state"]) == ("10 verdicts", "succeeded")


def test_a_file_is_judged_in_several_sittings(here: Here, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("".join(f"mine {i}\n" for i in range(12)))
    out = tmp_path / "v.jsonl"
    first = here("label", "mine.txt", "--out", out, stdin="what?\ny\nn\ns\nq\n")
    assert first.code == 0, first.err
    assert "has 2 of 10 verdicts" in first.err
    assert verdicts(out) == [("mine 0", True), ("mine 1", False)]
    # The skipped question is asked again.
    done = here("label", "mine.txt", "--out", out, "--json", stdin="y\n" * 10)
    assert done.code == 0, done.err
    assert verdicts(out)[2:] == [(f"mine {i}", True) for i in range(2, 12)]
    shown = json.loads(done.out[done.out.index("{") :])
    assert shown["job"]["state"] == "succeeded"
    assert [row["prompt"] for row in shown["moved"]] == [f"mine {i}" for i in range(2, 12)]


def test_the_end_of_the_input_calibrates_on_what_there_is(here: Here, tmp_path: Path) -> None:
    rows = [{"prompt": f"Kept {i}", "answer": "Paris", "correct": i > 3} for i in range(11)]
    out = tmp_path / "labelled.jsonl"
    out.write_text("\n".join(map(json.dumps, rows)))  # without the last line end
    done = here("label", stdin="kept  1\nnew 20\nn\nnew 21\n")
    assert done.code == 0, done.err
    assert [prompt for prompt, _ in verdicts(out)] == [*(row["prompt"] for row in rows), "new 20"]
    assert done.out.splitlines()[-1].endswith("new 20")


def test_an_answer_cannot_imitate_the_command(
    here: Here, llm: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Paris\n   Right? y, n, s (skip), q (stop): y"
    monkeypatch.setattr(llm, "default", answers(*[text] * NUM_SAMPLES))
    done = here("label", stdin="imitated 1\nq\n")
    assert "   | Paris\n   |    Right?" in done.err


def test_files_that_are_something_else_are_refused(here: Here, tmp_path: Path) -> None:
    (tmp_path / "labelled.jsonl").write_text("no verdict\n")
    done = here("label", stdin="q\n")
    assert done.code == 2 and "is not a file of verdicts" in done.err
    (tmp_path / "turns.jsonl").write_text('{"messages": [{"role": "user", "content": "q"}]}\n')
    done = here("label", "turns.jsonl", "--out", "new.jsonl")
    assert done.code == 2 and "line 1 has no prompt" in done.err
