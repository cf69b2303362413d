"""The command on tiny files with fakes: what it writes, what it keeps, how it goes on."""

import csv
import hashlib
import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from service.errors import Conflict, InvalidDevData, LLMError
from service.evaluation.command import NOT_ASKED, SUPPLIED, Components, evaluate
from service.evaluation.command import Plan as FullPlan
from service.evaluation.kept import write_results
from service.evaluation.page import CAPTIONS, FIGURES
from service.llm.port import Sampling
from service.scoring.command import Serving
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.reports import FEW
from tests.support.worlds import rows, write

Plan = partial(FullPlan, resamples=FEW)
SERVING = Serving(6, Sampling(), Sampling())
LONELY = {"algorithm1_diagram", "similarity"}  # of so few prompts, no two fall into one cluster
NOW = datetime(2026, 11, 3, 12, 30, tzinfo=UTC)


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


def parts(llm=None, embedders=None, **more):
    more.setdefault("now", lambda: NOW)
    return Components(llm or FakeLLM(), embedders or [FakeEmbedder(16)], SERVING, version="1.2.3", **more)


def by_name(results):
    return {one["name"]: one for one in results["experiments"]}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run on files with samples, by two embedders of one name."""
    folder = tmp_path_factory.mktemp("evaluation")
    _, dev, test = files(folder)
    plan = Plan(dev, test, folder / "out")
    return plan, evaluate(plan, parts(embedders=[FakeEmbedder(16), FakeEmbedder(24)]))


def test_everything_is_written(finished):
    plan, results = finished
    ran = {one["name"] for one in results["experiments"] if one["ran"]}
    assert ran == set(CAPTIONS) - {"sampling_temperature"} - LONELY
    files = {p.name for p in (plan.out / "figures").iterdir()}
    assert {name for name in files if name.endswith(".csv")} == {f"{name}.csv" for name in ran}
    drawn = {name.removesuffix(".svg").partition("-")[0] for name in files if name.endswith(".svg")}
    assert drawn == ran & {*FIGURES, "accuracy_rejection"}
    assert json.loads((plan.out / "results.json").read_text()) == results
    page = (plan.out / "report.html").read_text()
    assert all(f'id="{name}"' in page for name in CAPTIONS)
    assert not list(plan.out.rglob("*.part"))


def test_csv_holds_the_points(finished):
    plan, results = finished
    for one in results["experiments"]:
        if one["ran"]:
            with (plan.out / "figures" / f"{one['name']}.csv").open() as file:
                read = list(csv.DictReader(file))
            assert len(read) == len(one["points"])
            assert list(read[0]) == list(one["points"][0])


def test_supplied_samples_are_never_drawn_and_it_says_so(finished):
    _, results = finished
    assert by_name(results)["sampling_temperature"]["reason"] == SUPPLIED
    assert results["embedders"] == ["fake-embedder", "fake-embedder (2)"]
    assert results["num_samples"] == 6
    assert any("Only 32 dev prompts" in one for one in results["warnings"])
    assert by_name(results)["baselines"]["headline"]["log_probabilities"] == "per word"


def test_a_second_run_embeds_nothing_and_gives_the_same(finished):
    plan, results = finished
    again = [FakeEmbedder(16), FakeEmbedder(24)]
    assert evaluate(plan, parts(embedders=again)) == results
    assert [one.calls for one in again] == [[], []]


def test_supplied_samples_need_no_model_and_a_limit_takes_the_first_rows(finished):
    plan, _ = finished
    llm = ScriptedLLM([])
    results = evaluate(replace(plan, limit=30), parts(llm))
    assert (llm.lives, llm.requests) == (0, [])
    assert (results["dev"]["used"], results["dev"]["rows"]) == (30, 32)


def test_more_answers_in_one_file_show_in_the_convergence_alone(tmp_path):
    dev = write(tmp_path / "dev.jsonl", rows(32, 12, seed=1))
    test = write(tmp_path / "test.jsonl", rows(32, 6, seed=2))
    results = evaluate(Plan(dev, test, tmp_path / "out"), parts())
    assert results["num_samples"] == 6
    assert results["dev"]["answers_in_file"] == 12
    assert by_name(results)["estimator_convergence"]["headline"]["to_num_samples"] == 12


def test_tokens_of_the_files_are_what_a_question_costs(tmp_path):
    made = [{**row, "tokens": [3] * 6} for row in rows(32, 6, seed=1)]
    path = write(tmp_path / "rows.jsonl", made)
    found = by_name(evaluate(Plan(path, path, tmp_path / "out"), parts()))["answers"]
    assert {row["num_samples"]: row["tokens"] for row in found["points"]} == {1: 3, 2: 6, 3: 9, 5: 15, 6: 18}
    assert found["headline"]["tokens_of_all"] == 18


def test_answers_are_drawn_kept_and_not_drawn_again(tmp_path):
    made, dev, test = files(tmp_path, drop=("samples", "logprob"))
    plan = Plan(dev, test, tmp_path / "out")
    broken = ScriptedLLM(made, left=20)
    with pytest.raises(LLMError):
        evaluate(plan, parts(broken))
    kept = (plan.out / "answers.jsonl").read_bytes()
    assert kept.count(b"\n") == 1 + 20  # the set-up, and the answers
    (plan.out / "answers.jsonl").write_bytes(kept + b'{"key": "cut by a cra')
    llm = ScriptedLLM(made)
    results = evaluate(plan, parts(llm))
    assert len(llm.requests) == 64 - 20
    assert by_name(results)["sampling_temperature"]["reason"] == NOT_ASKED
    silent = ScriptedLLM(made, left=0)
    assert evaluate(plan, parts(silent)) == results


def test_drawn_answers_give_what_supplied_ones_give(tmp_path):
    """Both without log-probabilities, which the scripted model does not tell."""
    made, dev, test = files(tmp_path, drop=("samples", "logprob"))
    drawn = by_name(evaluate(Plan(dev, test, tmp_path / "out"), parts(ScriptedLLM(made))))
    (tmp_path / "with").mkdir()
    _, dev, test = files(tmp_path / "with", drop=("logprob",))
    supplied = by_name(evaluate(Plan(dev, test, tmp_path / "with" / "out"), parts()))
    for name in ("projection_reliability", "algorithm1_diagram", "auroc", "co_minimised", "answers"):
        assert drawn[name] == supplied[name]


def test_answers_come_in_parts(tmp_path):
    made, dev, test = files(tmp_path, drop=("samples", "logprob"))
    llm = ScriptedLLM(made)
    llm.deliver = 4
    results = evaluate(Plan(dev, test, tmp_path / "out"), parts(llm, slots=4))
    assert results["num_samples"] == 6
    assert [r.num_samples for r in llm.requests].count(2) == 64


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A run that drew every answer: its rows, its plan, its results."""
    folder = tmp_path_factory.mktemp("drawn")
    made, dev, test = files(folder, drop=("samples", "logprob"))
    plan = Plan(dev, test, folder / "out")
    return made, plan, evaluate(plan, parts(ScriptedLLM(made)))


def refused(plan, one):
    with pytest.raises(Conflict) as caught:
        evaluate(plan, one)
    assert "another --out, or --anew" in caught.value.detail
    return caught.value.detail


def test_answers_kept_whole_of_another_model_are_refused(drawn):
    made, plan, _ = drawn
    other = ScriptedLLM(made, model="other")
    assert "model was 'fake-llm', now 'other'" in refused(plan, parts(other))
    assert other.requests == []


def test_answers_kept_of_another_sampling_are_refused(drawn):
    made, plan, _ = drawn
    warmer = Serving(6, Sampling(temperature=0.9), Sampling(temperature=0.9))
    said = refused(plan, replace(parts(ScriptedLLM(made)), serving=warmer))
    assert "sampling.temperature was 0.5, now 0.9" in said


def test_anew_sets_the_kept_answers_aside_and_draws_again(drawn, tmp_path):
    made, plan, _ = drawn
    out = shutil.copytree(plan.out, tmp_path / "out")
    before = (out / "answers.jsonl").read_bytes()
    other = ScriptedLLM(made, model="other")
    results = evaluate(replace(plan, out=out, anew=True), parts(other))
    assert len(other.requests) == 64
    assert results["provenance"]["answers"]["model"] == "other"
    assert (out / "answers-1.jsonl").read_bytes() == before


class Masked(ScriptedLLM):
    """A server that ignores the model asked for, and answers as another."""

    async def generate(self, request):
        return replace(await super().generate(request), model=self.answers_as)


def test_a_server_that_answers_as_another_model_is_noticed(tmp_path):
    made, dev, test = files(tmp_path, drop=("samples", "logprob"))
    plan = Plan(dev, test, tmp_path / "out")
    llm = Masked(made, left=10)
    llm.answers_as = "real-1"
    with pytest.raises(LLMError):
        evaluate(plan, parts(llm))
    llm = Masked(made)
    llm.answers_as = "real-2"
    assert "answered_as was 'real-1', now 'real-2'" in refused(plan, parts(llm))


def test_the_results_and_the_page_say_where_they_come_from(drawn):
    _, plan, results = drawn
    told = json.loads((plan.out / "results.json").read_text())["provenance"]
    assert told == results["provenance"]
    hashes = {
        s: hashlib.sha256(p.read_bytes()).hexdigest() for s, p in (("dev", plan.dev), ("test", plan.test))
    }
    assert told["files"] == {
        s: {"name": f"{s}.jsonl", "sha256": h, "answers_from": "model"} for s, h in hashes.items()
    }
    assert (told["answers"]["model"], told["answers"]["answered_as"]) == ("fake-llm", "fake-llm")
    assert told["answers"]["setups"]["prompt"]["sampling.temperature"] == 0.5
    [embedder] = told["embedders"]
    assert (embedder["name"], embedder["dimension"]) == ("fake-embedder", 16)
    assert (told["eps"], told["version"], told["created_at"]) == (1e-10, "1.2.3", "2026-11-03T12:30:00+00:00")
    page = (plan.out / "report.html").read_text()
    for said in (
        *hashes.values(),
        "dev.jsonl",
        "fake-llm",
        embedder["revision"],
        "d = 16",
        "1e-10",
        "2026-11-03 12:30 UTC",
        "Eigencal 1.2.3",
        '<tr><th scope="row">Seed</th><td>0</td></tr>',
    ):
        assert said in page


def test_a_file_with_its_answers_does_not_say_who_drew_them(finished):
    plan, results = finished
    assert results["provenance"]["answers"] is None
    assert {one["answers_from"] for one in results["provenance"]["files"].values()} == {"file"}
    assert "not known: the answers came with the files" in (plan.out / "report.html").read_text()


def test_a_report_of_other_files_is_kept_beside_the_new_one(finished, tmp_path):
    _, results = finished
    out = tmp_path / "out"
    out.mkdir()
    write_results(out, results)
    before = (out / "report.html").read_bytes()
    write_results(out, results)
    assert not (out / "results-1.json").exists()
    others = {split: {**one, "sha256": "0" * 64} for split, one in results["provenance"]["files"].items()}
    write_results(out, {**results, "provenance": {**results["provenance"], "files": others}})
    assert (out / "report-1.html").read_bytes() == before
    assert json.loads((out / "results-1.json").read_text()) == results
    assert (out / "figures-1").is_dir()
    assert json.loads((out / "results.json").read_text())["provenance"]["files"] == others


def test_the_sampling_baseline_draws_at_every_temperature(tmp_path):
    made, dev, test = files(tmp_path, drop=("samples", "logprob"))
    llm = ScriptedLLM(made)
    plan = Plan(dev, test, tmp_path / "out", sampling_temperatures=(0.2, 0.5, 0.9))
    found = by_name(evaluate(plan, parts(llm)))["sampling_temperature"]
    assert found["ran"]
    assert [row["sampling_temperature"] for row in found["points"]] == [0.2, 0.5, 0.9]
    asked = [r.sampling.temperature for r in llm.requests]
    chosen = found["headline"]["sampling_temperature"]
    expected = {0.2: 32, 0.5: 64, 0.9: 32}  # 0.5 is the serving one: those answers are there already
    if chosen != 0.5:
        expected[chosen] += 32
    assert {t: asked.count(t) for t in expected} == expected


def test_bad_rows_are_refused_before_anything_is_drawn(tmp_path):
    _, dev, _ = files(tmp_path)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "no reference"}\n')
    with pytest.raises(InvalidDevData):
        evaluate(Plan(dev, bad, tmp_path / "out"), parts())


def test_empty_answers_conversations_and_several_references(tmp_path):
    made = rows(40, 6, seed=3)
    for i, row in enumerate(made):
        row["reference"] = [row["reference"], "or this"]
        if i % 3 == 0:
            row["samples"][:2] = ["", ""]
        if i % 2:
            row["messages"] = [{"role": "user", "content": row.pop("prompt")}]
    path = write(tmp_path / "rows.jsonl", made)
    results = evaluate(Plan(path, path, tmp_path / "out"), parts())
    assert all(
        one["ran"]
        for one in results["experiments"]
        if one["name"] not in {"embedders", "sampling_temperature"} | LONELY
    )
    assert by_name(results)["constant_predictor"]["headline"]["one_within"]


def test_rows_with_too_few_answers_are_left_out(tmp_path):
    made = rows(40, 6, seed=3)
    for row in made[:3]:
        row["samples"], row["logprob"] = row["samples"][:2], row["logprob"][:2]
    path = write(tmp_path / "rows.jsonl", made)
    results = evaluate(Plan(path, path, tmp_path / "out"), parts())
    assert (results["test"]["rows"], results["test"]["used"]) == (40, 37)
