"""The evaluation command on tiny files with fakes: output, stored answers and resuming."""

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from lab.command import Components, evaluate
from lab.command import Plan as FullPlan
from lab.figures import figures, tables
from service.errors import LLMError
from service.llm.prompt import Sampling
from service.scoring.score import Serving
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.reports import FEW
from tests.support.worlds import rows, write

Plan = partial(FullPlan, resamples=FEW)
SERVING = Serving(6, Sampling(), Sampling())


class ScriptedLLM(FakeLLM):
    """Answers each prompt with its row's samples; raises once `left` requests were answered."""

    def __init__(self, made, *, left=10**6, model="fake-llm"):
        super().__init__({row["prompt"]: row["samples"] for row in made}, model=model)
        self.left = left
        self.lives = 0

    async def start(self):
        self.lives += 1

    async def generate(self, request):
        if self.left == 0:
            raise LLMError("The server refused.", llm_status=400)
        self.left -= 1
        return await super().generate(request)


def files(folder: Path, count: int = 32, m: int = 6, *, drop=()):
    dev, test = rows(count, m, seed=1), rows(count, m, seed=2)
    for i, row in enumerate(test):
        row["prompt"] = f"other {i}"
    paths = [
        write(folder / f"{name}.jsonl", made, drop=drop) for name, made in (("dev", dev), ("test", test))
    ]
    return dev + test, *paths


def parts(llm=None, **more):
    return Components(llm or FakeLLM(), FakeEmbedder(16), SERVING, version="1.2.3", **more)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Run the command on files with samples; return the results."""
    folder = tmp_path_factory.mktemp("evaluation")
    _, dev, test = files(folder)
    plan = Plan(dev, test, folder / "out")
    return plan, evaluate(plan, parts())


def test_results_and_page_are_written(finished):
    plan, results = finished
    assert {path.name for path in plan.out.iterdir()} == {
        "results.json",
        "report.html",
        "tables.md",
        "figures",
    }
    assert (plan.out / "tables.md").read_text() == tables(results)
    assert {path.stem for path in (plan.out / "figures").iterdir()} == figures(results).keys()
    assert json.loads((plan.out / "results.json").read_text()) == results
    assert "</html>" in (plan.out / "report.html").read_text()
    assert results["num_samples"] == 6
    assert "Only 32 dev prompts" in results["warnings"][0]["text"]
    assert results["baselines"]["log_probabilities"] == "per word"


def test_supplied_samples_need_no_model_and_a_limit_takes_the_first_rows(finished):
    plan, _ = finished
    llm = ScriptedLLM([])
    results = evaluate(replace(plan, limit=30), parts(llm))
    assert (llm.lives, llm.requests) == (0, [])
    assert (results["dev"]["used"], results["dev"]["rows"]) == (30, 32)


def test_sampled_answers_are_stored_and_reused(tmp_path):
    made, dev, test = files(tmp_path, drop=("samples", "logprob"))
    plan = Plan(dev, test, tmp_path / "out")
    with pytest.raises(LLMError):
        evaluate(plan, parts(ScriptedLLM(made, left=20)))
    kept = plan.out / "answers.jsonl"
    assert kept.read_bytes().count(b"\n") == 20
    kept.write_bytes(kept.read_bytes() + b'{"key": "cut by a cra')
    llm = ScriptedLLM(made)
    results = evaluate(plan, parts(llm))
    assert len(llm.requests) == 64 - 20
    assert evaluate(plan, parts(ScriptedLLM(made, left=0)))["served"] == results["served"]
    assert results["provenance"]["answers"]["prompt"]["sampling.temperature"] == 0.5
    # Another model or sampling gives other answers.
    for other in (
        parts(ScriptedLLM(made, left=0, model="other")),
        replace(parts(ScriptedLLM(made, left=0)), serving=Serving(6, Sampling(0.9), Sampling(0.9))),
    ):
        with pytest.raises(LLMError):
            evaluate(plan, other)


class LateLLM(ScriptedLLM):
    """A server that is up, and names its model, only after a wait."""

    def __init__(self, made, *, left=10**6, model):
        super().__init__(made, left=left, model="")
        self.named_later = model

    async def check(self):
        self.model = self.named_later


def test_server_started_late_is_not_taken_for_another(tmp_path):
    made, dev, test = files(tmp_path, drop=("samples", "logprob"))
    plan = Plan(dev, test, tmp_path / "out")
    evaluate(plan, parts(LateLLM(made, model="one")))
    evaluate(plan, parts(ScriptedLLM(made, left=0, model="one")))
    with pytest.raises(LLMError):
        evaluate(plan, parts(LateLLM(made, left=0, model="other")))


def test_sampled_and_supplied_answers_give_equal_results(tmp_path):
    """Both are without log-probabilities, which the scripted model does not return."""
    made, dev, test = files(tmp_path, drop=("samples", "logprob"))
    drawn = evaluate(Plan(dev, test, tmp_path / "out"), parts(ScriptedLLM(made), slots=4))
    (tmp_path / "with").mkdir()
    _, dev, test = files(tmp_path / "with", drop=("logprob",))
    supplied = evaluate(Plan(dev, test, tmp_path / "with" / "out"), parts())
    for name in ("fits", "served", "curves", "answers", "baselines"):
        assert drawn[name] == supplied[name]


def test_empty_answers_are_drawn_again(tmp_path):
    class OftenEmptyLLM(ScriptedLLM):
        async def generate(self, request):
            drawn = await super().generate(request)
            return replace(drawn, draws=drawn.draws[:4], num_empty=len(drawn.draws[4:]))

    made, dev, test = files(tmp_path, drop=("samples", "logprob"))
    llm = OftenEmptyLLM(made)
    assert evaluate(Plan(dev, test, tmp_path / "out"), parts(llm, slots=4))["num_samples"] == 6
    assert [r.num_samples for r in llm.requests].count(2) == 64


def test_results_and_page_show_their_origin(finished):
    plan, results = finished
    provenance = results["provenance"]
    hashes = {
        s: hashlib.sha256(p.read_bytes()).hexdigest() for s, p in (("dev", plan.dev), ("test", plan.test))
    }
    assert provenance["files"] == {
        s: {"name": f"{s}.jsonl", "sha256": h, "answers_from": "file"} for s, h in hashes.items()
    }
    assert provenance["answers"] is None
    assert (provenance["embedder"]["name"], provenance["embedder"]["dimension"]) == ("fake-embedder", 16)
    assert (provenance["eps"], provenance["version"]) == (1e-10, "1.2.3")
    assert datetime.fromisoformat(provenance["created_at"]).tzinfo == UTC
    page = (plan.out / "report.html").read_text()
    assert all(digest in page for digest in hashes.values())


def test_blank_answers_conversations_several_references_and_short_rows(tmp_path):
    made = rows(43, 6, seed=3)
    for i, row in enumerate(made):
        row["reference"] = [row["reference"], "or this"]
        if i % 3 == 0:
            row["samples"][:2] = ["", ""]
        if i % 2:
            row["messages"] = [{"role": "user", "content": row.pop("prompt")}]
    for row in made[:3]:
        row["samples"], row["logprob"] = row["samples"][-2:], row["logprob"][-2:]
    path = write(tmp_path / "rows.jsonl", made)
    results = evaluate(Plan(path, path, tmp_path / "out", num_samples=4), parts())
    assert (results["test"]["rows"], results["test"]["used"]) == (43, 40)
