"""`eigencal score --file`: input, output, and errors detected before anything is sent."""

import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Here
from tests.cli.scripted import batch, scored, scripted
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


def test_file_of_plain_lines(here: Here, tmp_path: Path, results: Path, llm: OpenAIServer) -> None:
    # A byte order mark, Windows line ends, an empty line, and no newline at the end.
    file = written(tmp_path / "q.txt", b"\xef\xbb\xbfGr\xc3\xb6\xc3\x9fe 1\r\n\r\n  question 2  \nquestion 3")
    done = here("score", "--file", file, "--out", results)
    assert (done.code, done.out) == (0, ""), done.err
    assert done.err.endswith(f"scored: 3, errors: 0, left: 0 in {results}\n")
    assert sorted(asked(llm)[-3:]) == ["Größe 1", "question 2", "question 3"]
    assert sorted(row["line"] for row in read(results)) == [1, 3, 4]


def test_file_of_requests_with_own_ids_and_fields(
    here: Here, tmp_path: Path, results: Path, llm: OpenAIServer
) -> None:
    rows = [
        {"id": "a", "prompt": "question 1", "num_samples": 3},
        {"id": 7, "messages": [{"role": "user", "content": "question 2"}]},
        {"samples": ["Paris", "Lyon", "Paris"]},
        "question 4",
        {"id": "bad", "prompt": "question 5", "num_samples": 1000},
    ]
    file = written(tmp_path / "q.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    done = here("score", "--file", file, "--out", results, "--num-samples", 4)
    assert done.code == 8, "one line is an error"
    assert "scored: 4, errors: 1, left: 0" in done.err
    by_line = {row["line"]: row for row in read(results)}
    assert {line: row["id"] for line, row in by_line.items()} == {1: "a", 2: 7, 3: None, 4: None, 5: "bad"}
    assert [by_line[line]["result"]["num_samples"] for line in (1, 2, 3, 4)] == [3, 4, 3, 4]
    assert by_line[5]["error"]["code"] == "invalid_request"
    assert "num_samples" in json.dumps(by_line[5]["error"]["errors"])


def test_finished_run_is_not_repeated(here: Here, tmp_path: Path, results: Path, llm: OpenAIServer) -> None:
    file = written(tmp_path / "q.txt", "question 1\nquestion 2\n")
    arguments = ("score", "--file", file, "--out", results)
    assert here(*arguments).code == 0
    first, count = results.read_bytes(), len(asked(llm))
    done = here(*arguments)
    assert (done.code, results.read_bytes(), len(asked(llm))) == (0, first, count)
    assert done.err.startswith("2 of 2 are done already\n")
    written(file, "question 1\nquestion 2\nquestion 3\n")  # a grown file is continued
    assert here(*arguments).code == 0
    assert results.read_bytes().startswith(first)
    assert asked(llm)[count:] == ["question 3"]


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("question 1\nquestion 9\n", [], "answers line 2, which is gone, or is another question now"),
        ("question 1\nquestion 2\n", ["--num-samples", 3], "or the same with other options"),
    ],
)
def test_changed_file_is_refused(
    here: Here, tmp_path: Path, results: Path, llm: OpenAIServer, text: str, options: list[str], said: str
) -> None:
    file = written(tmp_path / "q.txt", "question 1\nquestion 2\n")
    assert here("score", "--file", file, "--out", results).code == 0
    before, count = results.read_bytes(), len(asked(llm))
    written(file, text)
    done = here("score", "--file", file, "--out", results, *options)
    assert (done.code, results.read_bytes(), len(asked(llm))) == (2, before, count)
    assert said in done.err


@pytest.mark.parametrize(
    "held",
    [
        b"one line without an end",
        b'{"line": 1, "request": "x", "result": {}}\n\x00\x00\x00',
    ],
)
def test_output_file_with_other_content_is_not_changed(
    here: Here, tmp_path: Path, results: Path, held: bytes
) -> None:
    written(results, held)
    file = written(tmp_path / "q.txt", "question 1\n")
    done = here("score", "--file", file, "--out", results)
    assert (done.code, results.read_bytes()) == (2, held)
    assert "Nothing was changed" in done.err


def test_output_into_the_question_file_is_refused(here: Here, tmp_path: Path) -> None:
    file, other = written(tmp_path / "q.txt", "{"), tmp_path / "other.jsonl"
    os.link(file, other)
    for out in (file, other):
        done = here("score", "--file", file, "--out", out)
        assert (done.code, file.read_text()) == (2, "{")
        assert "holds the questions" in done.err
    assert here("score", "--file", file, "--out", tmp_path / "no" / "folder.jsonl").code == 2


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("q.jsonl", '{"prompt": "a"}\nno json\n[7]\n', "line 2 is no request: Expecting value"),
        ("q.jsonl", '{"prompt": "b", "target_error": 1e999}', "line 1 is no request: Out of range"),
        ("q.txt", "\n \n", "holds no question"),
        ("q.txt", b"question 1\nGr\xf6\xdfe\n", "line 2: it is not UTF-8"),
    ],
)
def test_a_bad_line_is_named_before_anything_is_sent(
    here: Here, tmp_path: Path, results: Path, llm: OpenAIServer, name: str, text: str | bytes, said: str
) -> None:
    count = len(asked(llm))
    done = here("score", "--file", written(tmp_path / name, text), "--out", results)
    assert (done.code, len(asked(llm)), results.exists()) == (2, count, False)
    assert said in done.err
    assert done.err.count("\n") == 1


def test_format_option(here: Here, tmp_path: Path, llm: OpenAIServer) -> None:
    file = written(tmp_path / "q.txt", '{"prompt": "question 1"}\n')
    assert here("score", "--file", file, "--format", "jsonl").code == 0
    assert asked(llm)[-1] == "question 1"
    done = here("score", "--file", "-", stdin="question 1\nquestion 2\n")
    assert (done.code, sorted(row["line"] for row in done.rows)) == (0, [1, 2]), done.err


def test_retry_errors_asks_failed_questions_again(here: Here, tmp_path: Path, results: Path) -> None:
    file = written(tmp_path / "q.txt", "a\nb\n")
    link = tmp_path / "link.jsonl"
    link.symlink_to(results)
    arguments = ("score", "--file", file, "--out", link, "--url")

    with scripted(batch("b", 422, "invalid_request")) as (url, _):
        assert here(*arguments, url).code == 8
        held = results.read_bytes()
        assert here(*arguments, url).code == 8, "an error stays one"
    assert results.read_bytes() == held
    with scripted(scored) as (url, service):
        done = here(*arguments, url, "--retry-errors")
    assert (done.code, [body["items"] for body in service.bodies]) == (0, [[{"prompt": "b"}]]), done.err
    assert link.is_symlink()
    assert ["result" in row for row in read(results)] == [True, True]
    assert {path.name for path in tmp_path.iterdir()} == {"q.txt", "results.jsonl", "link.jsonl"}


def test_single_question_refused_until_the_end_gets_an_error_line(
    here: Here, tmp_path: Path, results: Path
) -> None:
    file = written(tmp_path / "q.txt", "".join(f"question {i}\n" for i in range(40)))

    with scripted(batch("question 3", 503, "llm_unavailable", retryable=True)) as (url, _):
        done = here("score", "--file", file, "--out", results, "--url", url, "--patience", 0.05)
    assert done.code == 8, done.err
    assert "scored: 39, errors: 1, left: 0" in done.err


def test_refused_key_ends_the_run_at_once(here: Here, tmp_path: Path, results: Path) -> None:
    file = written(tmp_path / "q.txt", "".join(f"question {i}\n" for i in range(20)))
    done = here("score", "--file", file, "--out", results, EIGENCAL_KEY="another")
    assert (done.code, results.read_bytes()) == (4, b"")
    assert "left: 20" in done.err
    assert "bad_key" in done.err


def test_unavailable_service_ends_the_run(here: Here, tmp_path: Path, results: Path) -> None:
    file = written(tmp_path / "q.txt", "question 1\n")
    away = {"EIGENCAL_URL": "http://127.0.0.1:9"}
    done = here("score", "--file", file, "--out", results, "--patience", "0.2", **away)
    assert (done.code, results.read_bytes()) == (3, b"")
    assert "Waiting for it, 0.2 s at most" in done.err
    assert "run the same command again to go on" in done.err
    assert here("score", "--file", file, "--out", results).code == 0
