"""`eigencal score` with one question, and common behaviour of all commands: errors, JSON, exit codes."""

import json
import re

import pytest
import stamina

from tests.cli.conftest import ADMIN_KEY, Here
from tests.cli.scripted import scripted
from tests.support.openai_server import OpenAIServer, hang, status
from tests.support.services import asked


def test_score_is_shown_as_text(here: Here) -> None:
    done = here("score", "question 1", "--calibration", "none")
    assert done.code == 0, done.err
    first, *rest = done.out.splitlines()
    assert first in ("Paris", "Lyon", "Nice", "Lille", "Metz")
    assert any("lambda_max" in line for line in rest)
    assert "raw: no calibration" in done.out
    assert done.err == ""


def test_json_output_is_the_services_response(here: Here, llm: OpenAIServer) -> None:
    done = here("score", "question 2", "--json", "--num-samples", "4")
    assert done.code == 0, done.err
    assert done.json["num_samples"] == 4
    assert "samples" not in done.json, "what was not sent is not made up"
    assert asked(llm)[-1] == "question 2"


def test_question_from_stdin(here: Here, llm: OpenAIServer) -> None:
    done = here("score", "-", "--json", stdin="Größer als question 3\n")
    assert done.code == 0, done.err
    assert asked(llm)[-1] == "Größer als question 3"


def test_options_reach_the_service(here: Here) -> None:
    options = ["--candidate", "Paris", "--target-error", "0.1", "--confidence", "0.8", "--num-samples", "3"]
    body = here("score", "question 4", "--json", *options).json
    assert body["num_samples"] == 3
    assert body["candidate"]["probability"] is not None
    for option, field in (("--target-error", "target_error"), ("--confidence", "confidence")):
        refused = here("score", "question 4", option, "2")
        assert refused.code == 6 and field in refused.err


def test_candidate_is_judged_without_samples(here: Here, llm: OpenAIServer) -> None:
    options = ["--num-samples", "0", "--candidate", "Paris", "--candidate-logprob", "-1.5"]
    before = len(llm.requests)
    done = here("score", "question 5", "--calibration", "none", *options)
    assert (done.code, len(llm.requests)) == (0, before), done.err
    first, *rest = done.out.splitlines()
    assert first == "Paris" and "answers                     none drawn   raw: no calibration" in rest
    assert here("score", "question 5", "--json", *options).json["lambda_max"] is None


@pytest.mark.parametrize(
    ("arguments", "env", "code", "said"),
    [
        (["score", "question 1", "--num-samples", "1000"], {}, 6, "invalid_request: "),
        (["score", "question 1"], {"EIGENCAL_KEY": "another"}, 4, "bad_key: "),
        (["score", "question 1"], {"EIGENCAL_KEY": ""}, 4, "(EIGENCAL_KEY gives the key)"),
        (["score", "question 1", "--calibration", "cal_" + "0" * 26], {}, 5, "not_found: "),
        (["jobs"], {"EIGENCAL_URL": "http://127.0.0.1:9"}, 3, "(--url or EIGENCAL_URL names the service)"),
        (["score", "question 1"], {"EIGENCAL_URL": "ftp://x"}, 2, "must begin with http"),
        (["score"], {}, 2, "Give a question, or --file"),
        (["score", "question 1", "--out", "x"], {}, 2, "--out and --retry-errors go with --file"),
        (["score", "--file", "none.txt"], {}, 2, "none.txt: No such file"),
        (["jobs", "--watch"], {}, 2, "need the ID of a job"),
    ],
)
def test_error_is_one_line_with_an_exit_code(
    here: Here, arguments: list[str], env: dict[str, str], code: int, said: str
) -> None:
    with stamina.set_testing(True, attempts=2):  # retries without waiting
        done = here(*arguments, "--json", **env)
    assert (done.code, done.out) == (code, ""), done.err
    assert done.err.count("\n") == 1
    assert done.err.startswith("eigencal: ")
    assert said in done.err


@pytest.mark.parametrize("arguments", [["scores"], ["score", "x", "--num-samples", "huge"]])
def test_usage_error_refers_to_the_help(here: Here, arguments: list[str]) -> None:
    done = here(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "Usage: eigencal" in done.err and "--help' for help" in done.err


def test_error_names_the_request_and_verbose_shows_all_but_the_key(here: Here) -> None:
    done = here("score", "question 1", "--num-samples", "1000", "--verbose")
    assert done.code == 6
    first, second = done.err.splitlines()
    assert re.search(r"^eigencal: invalid_request: .*\(request [0-9A-Za-z_-]{8,}\)$", first)
    assert json.loads(second)["code"] == "invalid_request"
    assert ADMIN_KEY not in done.err


@pytest.mark.parametrize("arguments", [["score", "question 1"], ["report", "cal_1"]])
def test_url_of_another_service_is_reported(here: Here, running: str, arguments: list[str]) -> None:
    with scripted(status(200, b"<html>Hello</html>")) as (url, _):
        done = here(*arguments, "--url", url)
    assert (done.code, done.out, done.err.count("\n")) == (3, "", 1), done.err
    assert "--url or EIGENCAL_URL names the service" in done.err
    assert here("score", "question 1", "--url", f"{running}/v1").code == 0, "as OpenAI's clients are told"


def test_failing_and_missing_service_have_different_exit_codes(
    here: Here, llm: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm, "default", hang)
    done = here("score", "question 1", "--deadline-ms", "50")
    assert done.code == 7, done.err
