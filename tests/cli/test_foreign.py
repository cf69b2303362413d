"""A URL at which something else answers: the command says so, and writes no result of any question."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.cli.conftest import Here


class Page(BaseHTTPRequestHandler):
    """Knows no POST (501), and answers every GET with a page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>Hello</html>")

    def log_message(self, *_: object, **__: object) -> None:
        """Be silent."""


@pytest.fixture
def foreign() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(params=["another server", "/v1"])
def wrong(request: pytest.FixtureRequest, foreign: str, running: str) -> str:
    """Return a URL that is not the service's."""
    return foreign if request.param == "another server" else f"{running}/v1"


@pytest.mark.parametrize("arguments", [["score", "question 1"], ["jobs"], ["report", "cal_1"]])
def test_it_is_exit_code_3(here: Here, wrong: str, arguments: list[str]) -> None:
    done = here(*arguments, EIGENCAL_URL=wrong)
    assert (done.code, done.out, done.err.count("\n")) == (3, "", 1), done.err
    assert "--url or EIGENCAL_URL names the service" in done.err
    assert ("leave out /v1" in done.err) == wrong.endswith("/v1")


def test_a_run_ends_and_a_run_at_the_service_finds_nothing_done(
    here: Here, wrong: str, tmp_path: Path
) -> None:
    file, results = tmp_path / "q.txt", tmp_path / "results.jsonl"
    file.write_text("".join(f"question {i}\n" for i in range(1, 21)))
    arguments = ("score", "--file", file, "--out", results)
    done = here(*arguments, EIGENCAL_URL=wrong)
    assert (done.code, results.read_bytes()) == (3, b""), done.err
    assert "scored: 0, errors: 0, left: 20" in done.err
    assert here(*arguments).code == 0


class Odd(Page):
    """Answers every GET with an error whose parts are of other kinds than the contract has."""

    def do_GET(self) -> None:
        errors = [5, {"line": "a", "loc": 5}, {"line": {}, "msg": 7}, {"msg": None}]
        body = json.dumps({"code": "invalid_dev_data", "errors": errors}).encode()
        self.send_response(422)
        self.send_header("Content-Type", "application/problem+json")
        self.end_headers()
        self.wfile.write(body)


def test_an_error_of_other_kinds_is_told_all_the_same(here: Here) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        done = here("jobs", EIGENCAL_URL=f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()
    assert (done.code, done.out) == (6, ""), done.err
    assert "fault of the command" not in done.err
