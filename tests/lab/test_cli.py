"""`python -m lab evaluate` end to end, with a scripted server for answers and embeddings."""

import hashlib
import json
from functools import partial

import pytest
from typer.testing import CliRunner

import lab.__main__ as command
from lab.__main__ import cli
from tests.support.openai_server import OpenAIServer, answers, completion, serving_in_thread
from tests.support.reports import FEW
from tests.support.worlds import rows, write


def hashed(text):
    return [byte - 127.5 for byte in hashlib.sha256(text.encode()).digest()]


async def serve(exchange):
    """Embeddings by hash; answers by the prompt."""
    if exchange.path.endswith("/embeddings"):
        data = [{"index": i, "embedding": hashed(text)} for i, text in enumerate(exchange.body["input"])]
        await exchange.send(200, {"model": exchange.body["model"], "data": data})
        return
    prompt = exchange.body["messages"][-1]["content"]
    if "Answer 1: " in prompt:
        await compare(exchange, prompt)
        return
    number = int(prompt.rsplit("q", 1)[-1])
    await answers("Paris", *(["Lyon"] * (number % 4)), *(["Nice"] * (number % 3)))(exchange)


async def compare(exchange, prompt):
    """Reply Yes if both answers are equal, else No, with the log-probability of the token."""
    first, second = (line.split(": ", 1)[1] for line in prompt.splitlines()[-2:])
    token = {"token": "Yes" if first == second else "No", "logprob": -0.1}
    reply = completion(exchange, [token["token"]], "length")
    reply["choices"][0]["logprobs"] = {
        "content": [token | {"top_logprobs": [token, {"token": "So", "logprob": -9.0}]}]
    }
    await exchange.send(200, reply)


@pytest.fixture
def server(monkeypatch):
    with serving_in_thread(OpenAIServer(default=serve)) as server:
        for name, value in {
            "LLM_URL": server.url,
            "EMBEDDER_URL": server.url,
            "NUM_SAMPLES": "5",
        }.items():
            monkeypatch.setenv(f"EIGENCAL_{name}", value)
        yield server


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(command, "Plan", partial(command.Plan, resamples=FEW))


def run(*arguments):
    return CliRunner().invoke(cli, ["evaluate", *map(str, arguments)])


def files(folder, *drop):
    made = [{**row, "reference": "Paris" if i % 2 else "Rome"} for i, row in enumerate(rows(32, 5))]
    return [write(folder / f"{name}.jsonl", made, drop=("answer", *drop)) for name in ("dev", "test")]


def asked(server, ending):
    return [r for r in server.requests if r.path.endswith(ending)]


def test_answers_are_sampled_once_and_embedded_as_requested(tmp_path, server):
    out = tmp_path / "out"
    command = [*files(tmp_path, "samples", "logprob"), "--out", out, "--embedder", "a"]
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert str(out / "report.html") in result.output.replace("\n", "")
    results = json.loads((out / "results.json").read_text())
    assert results["provenance"]["embedder"]["name"] == "a"
    assert "evidence" in results["unfitted"]  # the server returns no log-probabilities
    before = len(asked(server, "completions"))
    assert run(*command).exit_code == 0  # nothing is sampled twice
    assert len(asked(server, "completions")) == before


def test_kernels_are_compared_by_the_server(tmp_path, server):
    out = tmp_path / "out"
    result = run(*files(tmp_path), "--out", out, "--compare", "llm")
    assert result.exit_code == 0, result.output
    compared = json.loads((out / "results.json").read_text())["compared"]
    asked_pairs = [r for r in asked(server, "completions") if "Answer 1: " in str(r.body)]
    # The first row is asked for once. Each call has 7 + 2 tokens, over 64 questions.
    assert compared["tokens_per_question"] == pytest.approx(9 * len(asked_pairs) / 64)
    assert compared["calls_per_question"] == pytest.approx(len(asked_pairs) / 64)


def test_bad_rows_are_named(tmp_path, server):
    dev, _ = files(tmp_path)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "x"}\n')
    result = run(dev, bad, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert f"{bad}: " in result.output.replace("\n", "")
    assert "line 1, reference: is missing" in result.output


def test_warning_if_both_files_are_the_same(tmp_path, server):
    dev, test = files(tmp_path)
    assert "the same file" in run(dev, dev, "--out", tmp_path / "one").output
    assert "one file" not in run(dev, test, "--out", tmp_path / "two").output


def test_missing_embedder_is_reported_before_sampling(tmp_path, server, monkeypatch):
    monkeypatch.setenv("EIGENCAL_EMBEDDER_URL", "http://127.0.0.1:9")  # a port without a server
    result = run(*files(tmp_path, "samples", "logprob"), "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "embedding server cannot be reached" in result.output
    assert not asked(server, "completions")


def test_file_instead_of_the_folder_is_reported_in_one_line(tmp_path, server):
    (tmp_path / "file").write_text("not a folder")
    result = run(*files(tmp_path), "--out", tmp_path / "file")
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)  # no traceback
    assert str(tmp_path / "file") in result.output
    assert result.output.count("\n") == 1
    assert not server.requests
