"""The whole pipeline with a store in a file: numbers, tables, decisions, warnings and exports."""

import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.calibration.material import full_number
from service.calibration.promotion import Improvement
from service.calibration.rows import DevRow
from service.calibration.store import SqlCalibrations
from service.errors import Conflict, EmbedderUnavailable, InvalidDevData
from service.jobs.model import JobOptions
from service.jobs.store import SqlJobs
from service.llm.openai_server import HttpLanguageModel
from service.spectral.resampling import Difference
from service.spectral.spectrum import DepolarizedMap
from tests.support.decisions import judged_rows
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.openai_server import OpenAIServer, answers
from tests.support.pipeline import Bench, Pipeline
from tests.support.sqlite_store import CopiedDatabase

WORDS = ("Paris", "Lyon", "Nice", "Lille", "Metz", "Brest", "Tours", "Dijon")
ALONE = JobOptions(prior_weight=0)  # without a prior, fits use only the rows


def made_rows(count: int = 40, m: int = 6, *, sharp: float = 1.0, seed: int = 1) -> list[DevRow]:
    """Return rows with a reference among the answers' meanings about half the time."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        p = rng.dirichlet(np.full(len(WORDS), 0.5)) ** sharp
        samples = tuple(str(w) for w in rng.choice(WORDS, m, p=p / p.sum()))
        reference = samples[0] if rng.random() < 0.5 else f"else {i}"
        rows.append(DevRow(i + 1, None, (reference,), prompt=f"q{i}", samples=samples))
    return rows


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    database = CopiedDatabase(tmp_path)
    calibrations = SqlCalibrations(database)
    yield Bench(SqlJobs(database, calibrations), calibrations, FakeEmbedder(24), FakeLLM())
    await database.stop()


def codes(report: dict[str, Any]) -> set[str]:
    return {warning["code"] for warning in report["warnings"]}


async def test_calibration_on_supplied_answers(bench: Bench) -> None:
    calibration_, report = await bench.run(
        made_rows(), JobOptions(name="first", source_label="theirs", activate="always")
    )
    assert bench.llm.requests == []
    assert (calibration_.method, calibration_.num_samples, calibration_.name) == ("depolarized", 6, "first")
    assert sorted(calibration_.parameters) == [2, 3, 4, 5, 6]
    assert isinstance(calibration_.map_for(4), DepolarizedMap)
    assert (calibration_.fingerprint.source, calibration_.fingerprint.source_label) == ("caller", "theirs")
    assert bench.calibrations.active(calibration_.fingerprint.key()) == calibration_
    assert report["calibration"]["id"] == calibration_.id
    assert report["data"] | {"accuracy": 0} == {
        "rows": 40,
        "usable": 40,
        "copies": 0,
        "rows_full": 40,
        "num_samples": 6,
        "drawn_by": "caller",
        "answers": 240,
        "distinct_mean": report["data"]["distinct_mean"],
        "truncated": 0.0,
        "empty": 0.0,
        "references_mean": 1.0,
        "correct_from": "rule",
        "accuracy": 0,
        "refused": {"count": 0, "rows": []},
    }
    assert [row["map"] for row in report["served"]] == ["raw", "temperature", "depolarized"]
    assert "few_rows" in codes(report)


async def test_headline_and_table_agree_with_the_report(bench: Bench) -> None:
    result, report = await bench.run(made_rows(), ALONE)
    fit = report["fits"]["depolarized"]
    head = result.headline()
    assert math.isclose(fit["temperature"]["value"], head.temperature, rel_tol=1e-6)
    assert math.isclose(fit["depolarization"]["value"], head.depolarization, rel_tol=1e-6)
    assert fit["temperature"]["low"] <= head.temperature <= fit["temperature"]["high"]
    assert fit["depolarization"]["low"] <= head.depolarization <= fit["depolarization"]["high"]
    assert report["parameters"][-1] == {
        "num_samples": 6,
        "temperature": head.temperature,
        "depolarization": head.depolarization,
    }
    assert report["calibration"]["temperature"] == head.temperature
    paper = report["fits"]["temperature"]
    assert math.isclose(paper["risk"], paper["mean_entropy"], rel_tol=1e-5)
    served = {row["map"]: row for row in report["served"]}
    assert served["depolarized"]["risk"] == fit["cv_risk"]
    assert served["depolarized"]["projection_brier"] < served["raw"]["projection_brier"]
    for diagram in report["curves"]["projection"].values():
        assert sum(b["count"] for b in diagram) == 40


async def test_calibration_on_sampled_answers(bench: Bench) -> None:
    rows = [replace(row, samples=None) for row in made_rows()]
    bench.llm.answers = {f"q{i}": made_rows()[i].samples or () for i in range(40)}
    calibration_, report = await bench.run(rows)
    assert len(bench.llm.requests) == 40
    assert (calibration_.num_samples, calibration_.fingerprint.source) == (5, "service")
    assert calibration_.fingerprint.model == "fake-llm"
    assert report["data"]["drawn_by"] == "service"
    exported = [row async for row in bench.calibrations.rows(calibration_.id)]
    bench.llm.requests.clear()
    again, _ = await bench.run(exported, JobOptions(drawn_by="service"))
    assert bench.llm.requests == []
    assert again.fingerprint == calibration_.fingerprint
    assert again.parameters == calibration_.parameters


async def test_calibration_belongs_to_the_sampling_model(bench: Bench) -> None:
    embed = bench.embedder.embed

    async def meanwhile(texts: Sequence[str]) -> Any:
        bench.llm.model = "later"
        return await embed(texts)

    bench.embedder.embed = meanwhile
    rows = made_rows()
    bench.llm.answers = {f"q{i}": rows[i].samples or () for i in range(40)}
    calibration_, _ = await bench.run([replace(row, samples=None) for row in rows])
    assert (calibration_.fingerprint.model, bench.llm.model) == ("fake-llm", "later")


async def test_vouched_answers_belong_to_the_current_model(bench: Bench) -> None:
    async with OpenAIServer(default=answers(model="told")) as server:
        bench.llm = HttpLanguageModel(server.url, model="asked")
        calibration_, _ = await bench.run(made_rows(), JobOptions(drawn_by="service"))
        again, _ = await bench.run(made_rows(), JobOptions(drawn_by="service"))
        assert calibration_.fingerprint == again.fingerprint
        assert (calibration_.fingerprint.model, len(server.bodies)) == ("told", 1)
        await bench.llm.stop()


async def test_equal_input_gives_equal_numbers(bench: Bench) -> None:
    calibration_, _ = await bench.run(made_rows(), JobOptions(activate="never", seed=7))
    same, _ = await bench.run(made_rows(), JobOptions(activate="never", seed=7))
    other, _ = await bench.run(made_rows(), JobOptions(activate="never", seed=8))
    assert calibration_.parameters == same.parameters
    assert calibration_.parameters[3] != other.parameters[3]  # other subsets
    assert calibration_.parameters[6] == other.parameters[6]  # the whole rows
    assert bench.calibrations.any_active() == []


async def test_if_better_compares_with_the_active_calibration(bench: Bench) -> None:
    first, report = await bench.run(made_rows(120), ALONE)
    assert report["decision"]["against"] is None
    assert report["decision"]["activated"]
    _, report = await bench.run(
        made_rows(120), ALONE
    )  # the same rows: the active one was fitted on all of them
    decision = report["decision"]
    assert (decision["against"], decision["activated"]) == (first.id, False)
    assert decision["difference"]["value"] > 0
    assert "not_better" in codes(report)
    assert [row["map"] for row in report["served"]][-1] == "active"
    assert bench.calibrations.any_active() == [first]
    # Fitted on rows with more agreement; the gain is not significant.
    _, report = await bench.run(made_rows(60, sharp=4.0, seed=5), ALONE)
    decision = report["decision"]
    assert (
        decision["difference"]["low"] < decision["difference"]["value"] < 0 < decision["difference"]["high"]
    )
    assert not decision["activated"] and "may be chance" in decision["reason"]
    assert "not_better" in codes(report)
    assert bench.calibrations.any_active() == [first]
    # Agreement is always right.
    shifted = [replace(row, references=(row.samples or ())[:1]) for row in made_rows(120, seed=5)]
    later, report = await bench.run(shifted, ALONE)
    decision = report["decision"]
    assert decision["activated"] and "not by chance (matrix risk" in decision["reason"]
    assert decision["difference"]["high"] < 0
    assert bench.calibrations.any_active() == [later]


async def test_better_separation_of_right_and_wrong_activates(bench: Bench) -> None:
    rows = [
        replace(judged_row, samples=tuple(draw.text for draw in judged_row.draws))
        for judged_row in judged_rows(400, num_samples=6)
    ]
    wrong = [replace(row, correct=False) for row in rows[:60]]
    first, _ = await bench.run(wrong, JobOptions(activate="always"))
    assert not first.selectors
    later, report = await bench.run(rows)
    decision = report["decision"]
    assert later.selectors and decision["loss_difference"]["high"] < 0
    assert "log loss of P(correct)" in decision["reason"] and decision["activated"]
    assert bench.calibrations.any_active() == [later]
    # The active calibration is judged with its own model, too.
    _, report = await bench.run(rows)
    assert report["decision"]["loss_difference"]["value"] != decision["loss_difference"]["value"]
    assert not report["decision"]["activated"]


BETTER, UNSURE, WORSE = (
    Difference(*figures) for figures in ((-0.2, -0.3, -0.1), (-0.2, -0.5, 0.1), (0.2, 0.1, 0.3))
)


@pytest.mark.parametrize(
    ("risk", "loss", "brier", "said"),
    [
        (BETTER, UNSURE, UNSURE, ""),
        (UNSURE, BETTER, UNSURE, ""),
        (UNSURE, UNSURE, BETTER, "may be chance"),
        (BETTER, WORSE, UNSURE, "worse than the active calibration (log loss of P(correct))"),
        (WORSE, BETTER, UNSURE, "worse than the active calibration (matrix risk)"),
        (BETTER, BETTER, WORSE, "worse than the active calibration (projection Brier)"),
    ],
)
def test_activation_needs_one_significant_gain_and_no_loss(
    risk: Any, loss: Any, brier: Any, said: str
) -> None:
    result = Improvement("cal_1", risk, brier, loss).shortcomings()
    assert bool(result) == bool(said)
    assert said in "".join(result)


async def test_correctness_model_is_kept_despite_few_rows(bench: Bench) -> None:
    first, _ = await bench.run(made_rows(240))
    assert first.selectors
    # With verdicts of one kind there is no such model.
    few = [
        replace(row, references=(f"else {row.line}",) if row.line % 3 else row.references, correct=False)
        for row in made_rows(60, seed=5)
    ]
    later, report = await bench.run(few)
    assert not later.selectors
    assert report["decision"]["difference"]["value"] < 0, "by its risk it would be activated"
    assert "gives P(correct)" in report["decision"]["reason"]
    assert bench.calibrations.any_active() == [first]
    later, _ = await bench.run(few, JobOptions(activate="always"))
    assert bench.calibrations.any_active() == [later]


def unanimous(count: int = 40) -> list[DevRow]:
    """Return rows with equal and right answers: raw scores are 1 and correct."""
    words = [WORDS[i % len(WORDS)] for i in range(count)]
    return [DevRow(i + 1, None, (w,), prompt=f"q{i}", samples=(w,) * 6) for i, w in enumerate(words)]


async def test_first_calibration_not_better_than_raw_is_not_activated(bench: Bench) -> None:
    _, report = await bench.run(unanimous())
    decision = report["decision"]
    assert "not_better" in codes(report)
    assert (decision["against"], decision["activated"]) == (None, False)
    assert decision["reason"].startswith(
        "Not activated: on held-out prompts it is not better than raw scores"
    )
    assert bench.calibrations.any_active() == []
    made, _ = await bench.run(unanimous(), JobOptions(activate="always"))
    assert bench.calibrations.any_active() == [made]


def noise(count: int) -> list[DevRow]:
    """Return rows with answers that agree only by chance and are unrelated to the references."""
    rng = np.random.default_rng(3)
    return [
        DevRow(
            i + 1,
            None,
            (f"else {i}",),
            prompt=f"q{i}",
            samples=tuple(f"noise {i} {k}" for k in rng.integers(0, 6, 6)),
            correct=bool(rng.random() < 0.5),
        )
        for i in range(count)
    ]


NONSENSE = {
    "few rows": (
        made_rows(99),
        "99 rows are too few to tell whether it is safe to use: label 1 more",
    ),
    "all wrong": (
        [replace(row, correct=False) for row in made_rows(120)],
        "all answers of its rows are wrong",
    ),
    "all right": (
        [replace(row, correct=True) for row in made_rows(120)],
        "all answers of its rows are right",
    ),
    "noise": (noise(150), "neither its confidence nor P(correct) is more informative"),
}


@pytest.mark.parametrize(("rows", "sentence"), NONSENSE.values(), ids=NONSENSE)
async def test_inconclusive_rows_do_not_activate(bench: Bench, rows: list[DevRow], sentence: str) -> None:
    _, report = await bench.run(rows)
    decision = report["decision"]
    assert not decision["activated"] and decision["reason"].startswith("Not activated: ")
    assert sentence in decision["reason"]
    assert bench.calibrations.any_active() == []
    made, report = await bench.run(rows, JobOptions(activate="always"))
    assert report["decision"]["reason"] == "Activated as asked."
    assert bench.calibrations.any_active() == [made]


async def test_rows_of_mixed_length(bench: Bench) -> None:
    """m is reached by nine in ten rows; longer rows are cut, shorter ones used only for smaller m'."""
    rows = made_rows(50)
    rows = [
        *rows[:40],
        *(replace(r, samples=(r.samples or ()) * 2) for r in rows[40:46]),
        *(replace(r, samples=(r.samples or ())[:3]) for r in rows[46:]),
    ]
    calibration_, report = await bench.run(rows)
    assert calibration_.num_samples == 6
    data = report["data"]
    assert (data["rows"], data["usable"], data["rows_full"]) == (50, 50, 46)
    assert "short_rows" in codes(report)
    only_full, _ = await bench.run(rows[:46], JobOptions(activate="never"))
    assert calibration_.parameters[6] == only_full.parameters[6]
    assert calibration_.parameters[3] != only_full.parameters[3]


@pytest.mark.parametrize(
    ("sizes", "num_samples", "expected"),
    [([6] * 9 + [2], None, 6), ([6] * 8 + [2] * 2, None, 2), ([3, 9], 5, 5), ([4, 8], None, 4)],
)
def test_number_of_answers_used_for_the_fit(sizes: list[int], num_samples: int | None, expected: int) -> None:
    assert full_number(sizes, num_samples) == expected


async def test_too_few_rows_with_enough_answers(bench: Bench) -> None:
    rows = [replace(r, samples=(r.samples or ())[: 3 + (i < 9)]) for i, r in enumerate(made_rows())]
    job, _ = await bench.jobs.submit(rows, JobOptions())
    assert job.state == "queued"
    _, report = await bench.run(rows)
    assert report["data"]["num_samples"] == 3
    with pytest.raises(InvalidDevData, match="9 of 40"):
        await bench.jobs.submit(rows, JobOptions(num_samples=4))


async def test_several_references_and_empty_answers(bench: Bench) -> None:
    bench.embedder.empty_answers = "outcome"
    rows = [
        replace(row, references=(*row.references, "other"), samples=(*(row.samples or ())[:4], "", ""))
        for row in made_rows()
    ]
    calibration_, report = await bench.run(rows)
    assert report["data"]["empty"] == pytest.approx(1 / 3)
    assert report["data"]["references_mean"] == 2
    assert "empty" in codes(report)
    assert calibration_.fingerprint.embedder_dimension == 24
    assert bench.embedder.calls
    assert all("" not in call for call in bench.embedder.calls)


async def test_supplied_empty_answers_do_not_count(bench: Bench) -> None:
    """The fit equals that of rows without them, and differs from one that counts them."""
    bare = made_rows()
    rows = [replace(row, samples=("", *(f" {text}\n" for text in row.samples or ()), " \n")) for row in bare]
    calibration_, report = await bench.run(rows, JobOptions(activate="never"))
    without, _ = await bench.run(bare)
    assert calibration_.parameters == without.parameters
    assert report["data"]["empty"] == 0
    assert calibration_.fingerprint.parts()["empty_answers"] == "failed"


async def test_if_better_keeps_calibration_for_larger_numbers_of_answers(bench: Bench) -> None:
    first, _ = await bench.run(made_rows(), JobOptions(activate="always"))
    fewer = [replace(r, samples=(r.samples or ())[:4]) for r in made_rows(60, sharp=4.0, seed=5)]
    _, report = await bench.run(fewer)
    decision = report["decision"]
    assert decision["difference"]["value"] < 0
    assert not decision["activated"]
    assert "answers" in decision["reason"]
    assert bench.calibrations.any_active() == [first]


async def test_calibration_activated_during_the_fit_is_not_replaced(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another replica or an operator: the two were not compared; a retry compares them."""
    first, _ = await bench.run(made_rows(), JobOptions(activate="never"))
    succeed = bench.jobs.succeed

    async def late(*given: Any, **more: Any) -> None:
        await bench.calibrations.activate(first.id)
        await succeed(*given, **more)

    monkeypatch.setattr(bench.jobs, "succeed", late)
    with pytest.raises(Conflict, match="retry"):
        await bench.run(made_rows(), JobOptions(activate="always"))
    assert bench.calibrations.any_active() == [first]


async def test_texts_are_embedded_once_in_small_chunks(bench: Bench) -> None:
    await bench.run(made_rows())
    texts = [text for call in bench.embedder.calls for text in call]
    assert len(texts) == len(set(texts))
    assert max(map(len, bench.embedder.calls)) == 16


async def test_job_waits_for_an_unavailable_embedder(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter([EmbedderUnavailable("down")] * 3)
    embed = bench.embedder.embed

    async def sometimes(texts: Sequence[str]) -> Any:
        for failure in failures:
            raise failure
        return await embed(texts)

    unknown = iter([EmbedderUnavailable("not asked yet")] * 3)

    async def check() -> None:
        for failure in unknown:
            raise failure

    monkeypatch.setattr(bench.embedder, "embed", sometimes)
    monkeypatch.setattr(bench.embedder, "check", check)
    score, _ = await bench.run(made_rows())
    assert next(failures, None) is None
    assert next(unknown, None) is None
    assert score.num_samples == 6


async def test_embedder_changed_after_sampling(bench: Bench) -> None:
    rows = [replace(row, samples=None) for row in made_rows()]
    job, _ = await bench.jobs.submit(rows, JobOptions())
    old, new = (Pipeline(bench.jobs, bench.calibrations, bench.llm, FakeEmbedder(d)) for d in (24, 32))
    await old.draw(job.id)
    with pytest.raises(Conflict, match="embedder_dimension"):
        await new.finish(job.id)


@pytest.mark.shared
async def test_the_golden_numbers(tmp_path: Path, golden: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Rows 0-149 with their samples. A stand-in text replaces the empty answers, which are embedded."""
    rows, vectors = [], {}
    for i, row in enumerate(recorded["rows"][:150]):
        samples = tuple(text or "(nothing)" for text in row["samples"])
        vectors |= dict(zip(samples, recorded["emb"][recorded["S"][i]], strict=True))
        vectors[row["reference"]] = recorded["emb"][recorded["Y"][i]]
        rows.append(DevRow(i + 1, str(row["id"]), (row["reference"],), row["prompt"], samples=samples))
    database = CopiedDatabase(tmp_path)
    calibrations = SqlCalibrations(database)
    bench = Bench(
        SqlJobs(database, calibrations), calibrations, FakeEmbedder(768, vectors=vectors), FakeLLM()
    )
    calibration_, report = await bench.run(rows, JobOptions(method="both", prior_weight=0))
    await database.stop()
    paper, ours = report["fits"]["temperature"], report["fits"]["depolarized"]
    assert paper["temperature"]["value"] == pytest.approx(golden["temperature"]["T"], abs=1e-3)
    assert paper["risk"] == pytest.approx(golden["temperature"]["risk_fit"], abs=1e-6)
    assert ours["temperature"]["value"] == pytest.approx(golden["depolarized"]["T"], abs=1e-3)
    assert ours["depolarization"]["value"] == pytest.approx(golden["depolarized"]["gamma"], abs=1e-3)
    assert ours["risk"] == pytest.approx(golden["depolarized"]["risk_fit"], abs=1e-6)
    assert calibration_.method == "depolarized"
    assert calibration_.headline().temperature == pytest.approx(golden["depolarized"]["T"], abs=1e-3)
    assert codes(report) == {"few_right"}
