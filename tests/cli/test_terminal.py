"""The command with terminals, pipes, encodings and shells, and without its extra."""

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from eigencal import __version__
from tests.cli.conftest import ADMIN_KEY, Here
from tests.cli.scripted import problem, scored, scripted
from tests.support.command import SOURCES, Command
from tests.support.in_a_terminal import terminal
from tests.support.openai_server import Exchange


def test_closed_pipe_is_not_an_error(running: str, command: Command) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    ended = subprocess.run(
        command.line("score", "question 1", "--json"),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=command.environment(EIGENCAL_URL=running, EIGENCAL_KEY=ADMIN_KEY),
        timeout=300,
        check=False,
    )
    os.close(theirs)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_output_is_utf_8_for_any_console_encoding(running: str, command: Command) -> None:
    samples = ["“Łódź” 🙂", "“Łódź” 🙂", "x"]
    file = command.home / "q.jsonl"
    file.write_text(f'{{"samples": {json.dumps(samples, ensure_ascii=False)}}}\n', encoding="utf-8")
    env = {"EIGENCAL_URL": running, "EIGENCAL_KEY": ADMIN_KEY, "PYTHONIOENCODING": "cp1252"}
    done = command("score", "--file", file, "--json", **env)
    assert done.code == 0, done.err
    assert done.rows[0]["result"]["answer"] == samples[0]


def claim(text: str, agree: int, example: str | None = None) -> dict[str, object]:
    support = {"agree": agree, "differ": 3 - agree, "silent": 0, "example": example}
    body = {"start": 0, "end": 1, "lambda_max": 0.5, "entropy": 0.5, "probability": 0.5}
    verdict = {"probability_correct": None, "decision": None, "doubtful": agree < 2}
    of_tokens = {"logprob": None, "fact_logprob": None, "least_logprob": None}
    return {"text": text, **body, **verdict, **of_tokens, "support": support}


UNDRAWN = claim("It is here.", 3) | {"support": None, "doubtful": None, "probability_correct": 0.75}
CLAIMS = [
    claim("It is big.", 3),
    claim("It is red.", 1, "It is blue."),
    claim("It\x1b[2J is flat.\nNow.", 0),
    UNDRAWN,
]


async def says_claims(exchange: Exchange) -> None:
    await scored(exchange, claims=CLAIMS, claims_calibration=None)


def test_claims_are_shown_with_their_support(here: Here) -> None:
    with scripted(says_claims) as (url, service):
        done = here("score", "a", "--claims", "--url", url)
    assert service.bodies[0]["claims"] is True
    lines = done.out.splitlines()
    begin = lines.index("claims                      4")
    assert lines[begin + 1 : begin + 10] == [
        "- It is big.",
        "  3 agree, 0 silent, 0 differ",
        "? It is red.",
        "  1 agree, 0 silent, 2 differ: It is blue.",
        "? It�[2J is flat.",
        "    Now.",
        "  0 agree, 0 silent, 3 differ",
        "- It is here.",
        "  P(right) 0.750",
    ]


@pytest.mark.parametrize(("no_colour", "coloured"), [("", True), ("1", False)])
def test_doubtful_claims_are_coloured_in_a_terminal(command: Command, no_colour: str, coloured: bool) -> None:
    with (
        scripted(says_claims) as (url, _),
        terminal(command, "score", "a", "--url", url, NO_COLOR=no_colour) as shown,
    ):
        output = shown.rest()
    yellow, plain = ("\x1b[33m", "\x1b[0m") if coloured else ("", "")
    assert f"\n{yellow}? It is red.{plain}\r\n" in output
    assert f"\n{yellow}? It\N{REPLACEMENT CHARACTER}[2J is flat.\r\n    Now.{plain}\r\n" in output
    assert "\n- It is big.\r\n" in output


EVIL = "hi\x1b]0;pwn\x07\x9b31m\x7f"


def is_harmless(text: str) -> bool:
    return not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


def test_text_of_the_service_cannot_control_the_terminal(here: Here) -> None:
    async def says(exchange: Exchange) -> None:
        await scored(exchange, answer=EVIL)

    async def fails(exchange: Exchange) -> None:
        await exchange.send(422, problem(422, "invalid_request", detail=EVIL))

    with scripted(says) as (url, _):
        as_text, in_json = here("score", "a", "--url", url), here("score", "a", "--url", url, "--json")
    with scripted(fails) as (url, _):
        failed = here("score", "a", "--url", url, "--verbose")
    assert (as_text.code, in_json.code, failed.code) == (0, 0, 6)
    assert in_json.json["answer"] == EVIL
    assert [is_harmless(text) for text in (as_text.out, in_json.out, failed.err)] == [True] * 3


def test_answer_cannot_imitate_output_of_the_command(here: Here) -> None:
    async def says(exchange: Exchange) -> None:
        forged = "Eight\n\nconfidence (lambda_max)     1.000   calibration cal_1\nP(answer is right)  0.999"
        await scored(exchange, answer=forged, lambda_max=0.1)

    with scripted(says) as (url, _):
        lines = here("score", "a", "--url", url).out.splitlines()
    assert [line for line in lines if line.startswith("P(")] == []
    assert [line.split()[2] for line in lines if line.startswith("confidence")] == ["0.100"]
    assert "    P(answer is right)  0.999" in lines


def test_version_and_help(here: Here) -> None:
    assert here("--version").out == f"eigencal {__version__}\n"
    assert here().out == here("--help").out
    assert "Exit codes:" in here("--help").out
    assert "Commands:" in here("keys").out


def test_command_runs_without_stdin() -> None:
    env = os.environ | {"PYTHONPATH": str(SOURCES)}
    command = ["sh", "-c", '"$0" -m eigencal.cli --version <&-', sys.executable]
    assert subprocess.run(command, env=env, capture_output=True, timeout=300, check=False).returncode == 0


def test_missing_extra_explains_the_installation(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    # The client's dependencies are missing, too: the check is before any import of the client.
    file = str(SOURCES / "eigencal" / "cli" / "__init__.py")
    code = f"import runpy; runpy.run_path({file!r})['main']()"
    ended = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    text = 'eigencal: the command line is an extra: pip install "eigencal[cli]"\n'
    assert ended.stderr == text
