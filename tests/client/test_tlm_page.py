"""The page about moving from TLM: its program runs, and its tables are those of the code."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.processes import PYTHON
from eigencal.compat import _options as options
from tests.support.command import SOURCES
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.in_thread import serving_app
from tests.support.memory_store import MemoryStore

PAGE = (Path(__file__).parents[2] / "docs" / "moving-from-tlm.md").read_text()
DIFF = PAGE.split("```diff\n", 1)[1].split("```", 1)[0]


def side(of: str) -> str:
    """Return the program of one side of the diff."""
    return "\n".join(line[1:] for line in DIFF.splitlines() if line[:1] in (of, " ", ""))


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    llm = FakeLLM(default=["8", "8", "8", "6"])
    with serving_app(tmp_path, llm=llm, embedder=FakeEmbedder(16), store=MemoryStore()) as found:
        yield found


def test_the_program_runs(url: str) -> None:
    program = side("+").replace("http://127.0.0.1:8000", url)
    ended = subprocess.run(
        [PYTHON, "-W", "error", "-c", program],
        env={"PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    first, *scores = ended.stdout.splitlines()
    assert re.fullmatch(r"8 0\.\d+ Of 20 answers, 2 distinct, 75% mean '8', 25% mean '6'\.", first)
    assert scores == ["0.0", "0.0"], "none of the answers says what was given"


def test_both_sides_differ_in_two_lines() -> None:
    assert len(re.findall(r"^-", DIFF, re.MULTILINE)) == len(re.findall(r"^\+", DIFF, re.MULTILINE)) == 2
    compile(side("-"), "before", "exec")


def names(*, row: str) -> set[str]:
    """Return the options of the rows of the second table that begin so."""
    table = PAGE.split("| option | here |", 1)[1]
    found = [line for line in table.splitlines() if line.startswith("|") and row in line]
    return {name for line in found for name in re.findall(r"`(\w+)`", line.split("|")[1])}


def test_options_are_those_of_the_code() -> None:
    assert names(row="| ignored") == set(options.IGNORED)
    assert names(row="| refused") == set(options.REFUSED)
    assert names(row="honoured") == {*options.HONOURED, "num_candidate_responses"}
    for preset, effort in options.EFFORTS.items():
        assert preset in PAGE
        assert effort in PAGE
