"""The README's examples: type-checked strictly, and run against the real application."""

import io
import re
import runpy
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tests.support.fakes import FakeEmbedder
from tests.support.in_thread import serving_app
from tests.support.openai_server import OpenAIServer, answers, serving_in_thread

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "clients" / "python"
BLOCKS = re.findall(r"^```python\n(.*?)^```", (PACKAGE / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def test_the_first_score_takes_four_lines() -> None:
    assert len(BLOCKS) == 6
    assert len(BLOCKS[0].splitlines()) == 4


def test_the_examples_are_typed(tmp_path: Path) -> None:
    for number, block in enumerate(BLOCKS):
        (tmp_path / f"example_{number}.py").write_text(block)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    checked = subprocess.run(
        [*command, *sorted(str(path) for path in tmp_path.glob("*.py"))],
        cwd=tmp_path, env={"MYPYPATH": str(PACKAGE / "src")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_no_example_puts_a_calibration_in_force_that_is_no_better() -> None:
    lines = [line.strip() for block in BLOCKS for line in block.splitlines()]
    assert [line for line in lines if line.startswith("client.activate(")] == []


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_an_example_does_what_it_says(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        f'{{"prompt": "question {i}", "reference": "Paris", "samples": ["Paris", "Lyon", "Paris"]}}\n'
        for i in range(60)
    ]
    (tmp_path / "dev.jsonl").write_text("".join(rows))
    monkeypatch.chdir(tmp_path)
    server = OpenAIServer(default=answers("Eight", "Eight", "Six"))
    with serving_in_thread(server):
        settings = {"llm_backend": "vllm", "llm_url": server.url, "num_samples": 5}
        with serving_app(tmp_path, llm=None, embedder=FakeEmbedder(16), **settings) as url:
            monkeypatch.setenv("EIGENCAL_URL", url)
            path = tmp_path / "example.py"
            path.write_text(BLOCKS[number].replace("http://127.0.0.1:8000", url))
            # Not pytest's: the service's loggers would keep a stream that ends with this test.
            with redirect_stdout(io.StringIO()) as out:
                runpy.run_path(str(path))
    said = out.getvalue()
    assert said.strip() and "something else" not in said and "not now" not in said
    if number == 0:
        answer, correct, lambda_max = said.split()
        assert (answer, correct) == ("Eight", "None") and 0 < float(lambda_max) <= 1
