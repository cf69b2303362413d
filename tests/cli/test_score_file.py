"""`eigencal score --file`: what goes in, what comes out, and what is noticed before anything is sent."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Here
from tests.support.command import Command
from tests.support.openai_server import OpenAIServer
from tests.support.services import asked


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_plain_lines(here: Here, tmp_path: Path, results: Path, llm: OpenAIServer) -> None:
    # A mark of the encoding, Windows' line ends, an empty line, no line end at the end.
    file = written(tmp_path / "q.txt", b"\xef\xbb\xbfGr\xc3\xb6\xc3\x9fe 1\r\n\r\n  question 2  \nquestion 3")
    done = here("score", "--file", file, "--out", results)
    assert (done.code, done.out) == (0, ""), done.err
    assert done.err == f"3 scored, 0 errors, 0 left in {results}\n"
    assert sorted(asked(llm)[-3:]) == ["Größe 1", "question 2", "question 3"]
    assert sorted(row["line"] for row in read(results)) == [1, 3, 4]


def test_requests_with_ids_and_fields_of_their_own(
    here: Here, tmp_path: Path, results: Path, llm: OpenAIServer
) -> None:
    rows = [
        {"id": "a", "prompt": "question 1", "num_samples": 3},
        {"id": 7, "messages": [{"role": "user", "content": "question 2"}]},
        {"samples": ["Paris", "Lyon", "Paris"]},
        "question 4",
        {"id": "bad", "prompt": "question 5", "num_samples": 0},
    ]
    file = written(tmp_path / "q.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    done = here("score", "--file", file, "--out", results, "--num-samples", 4)
    assert done.code == 8, "one line is an error"
    assert "4 scored, 1 errors, 0 left" in done.err
    by_line = {row["line"]: row for row in read(results)}
    assert {line: row["id"] for line, row in by_line.items()} == {1: "a", 2: 7, 3: None, 4: None, 5: "bad"}
    assert [by_line[line]["result"]["num_samples"] for line in (1, 2, 3, 4)] == [3, 4, 3, 4]
    assert by_line[5]["error"]["code"] == "invalid_request"
    assert "num_samples" in json.dumps(by_line[5]["error"]["errors"])
