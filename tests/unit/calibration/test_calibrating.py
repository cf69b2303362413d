"""The whole pipeline with a store in a file: numbers, tables, decisions, warnings and exports."""

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.calibration.promotion import Improvement
from service.calibration.rows import DevRow
from service.errors import Conflict, EmbedderUnavailable, InvalidDevData
from service.jobs.model import JobOptions
from service.llm.client import LLM
from service.spectral.resampling import Difference
from service.spectral.spectrum import DepolarizedMap
from tests.support.decisions import judged_rows
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.openai_server import OpenAIServer, answers
from tests.support.pipeline import Bench, Pipeline, bench_in

WORDS = ("Paris", "Lyon", "Nice", "Lille", "Metz", "Brest", "Tours", "Dijon")


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
    async with bench_in(tmp_path, FakeLLM()) as made:
        yield made


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
        "references_mean": 1.0,
        "correct_from": "rule",
        "accuracy": 0,
        "refused": {"count": 0, "rows": []},
    }
    assert list(report["projection"]) == ["raw", report["calibration"]["method"]]
    assert "few_rows" in codes(report)


async def test_vouched_answers_belong_to_the_current_model(bench: Bench) -> None:
    async with OpenAIServer(default=answers(model="told")) as server:
        bench.llm = LLM(server.url, model="asked")
        options = JobOptions(drawn_by="service", self_check=False)
        calibration_, _ = await bench.run(made_rows(), options)
        again, _ = await bench.run(made_rows(), options)
        assert calibration_.fingerprint == again.fingerprint
        assert (calibration_.fingerprint.model, len(server.bodies)) == ("told", 1)
        await bench.llm.stop()


async def test_if_better_compares_with_the_active_calibration(bench: Bench) -> None:
    first, report = await bench.run(made_rows(120))
    assert report["decision"]["against"] is None
    assert report["decision"]["activated"]
    _, report = await bench.run(made_rows(120))  # the same rows: the active one was fitted on all of them
    decision = report["decision"]
    assert (decision["against"], decision["activated"]) == (first.id, False)
    assert decision["difference"]["value"] > 0
    assert "not_better" in codes(report)
    assert bench.calibrations.any_active() == [first]
    # Fitted on rows with more agreement; the gain is not significant.
    _, report = await bench.run(made_rows(60, sharp=4.0, seed=5))
    decision = report["decision"]
    assert (
        decision["difference"]["low"] < decision["difference"]["value"] < 0 < decision["difference"]["high"]
    )
    assert not decision["activated"] and "may be chance" in decision["reason"]
    assert "not_better" in codes(report)
    assert bench.calibrations.any_active() == [first]
    # Agreement is always right.
    shifted = [replace(row, references=(row.samples or ())[:1]) for row in made_rows(120, seed=5)]
    later, report = await bench.run(shifted)
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
    assert calibration_.parameters == only_full.parameters


async def test_too_few_rows_with_enough_answers(bench: Bench) -> None:
    rows = [replace(r, samples=(r.samples or ())[: 3 + (i < 9)]) for i, r in enumerate(made_rows())]
    job, _ = await bench.jobs.submit(rows, JobOptions())
    assert job.state == "queued"
    _, report = await bench.run(rows)
    assert report["data"]["num_samples"] == 3
    with pytest.raises(InvalidDevData, match="9 of 40"):
        await bench.jobs.submit(rows, JobOptions(num_samples=4))


async def test_several_references_and_blank_answers_which_do_not_count(bench: Bench) -> None:
    rows = [
        replace(row, references=(*row.references, "other"), samples=(*(row.samples or ())[:4], "", ""))
        for row in made_rows()
    ]
    calibration_, report = await bench.run(rows)
    assert (report["data"]["num_samples"], report["data"]["answers"]) == (4, 4 * len(rows))
    assert report["data"]["references_mean"] == 2
    assert calibration_.fingerprint.embedder_dimension == 24
    assert bench.embedder.calls
    assert all("" not in call for call in bench.embedder.calls)


async def test_rows_with_a_blank_answer_are_left_out(bench: Bench) -> None:
    """Their verdict is about a text that does not count."""
    rows = [replace(row, answer="\u200b " if i < 4 else None) for i, row in enumerate(made_rows())]
    _, report = await bench.run(rows)
    assert (report["data"]["rows"], report["data"]["usable"]) == (len(rows), len(rows) - 4)


async def test_if_better_keeps_calibration_for_larger_numbers_of_answers(bench: Bench) -> None:
    first, _ = await bench.run(made_rows(), JobOptions(activate="always"))
    fewer = [replace(r, samples=(r.samples or ())[:4]) for r in made_rows(60, sharp=4.0, seed=5)]
    _, report = await bench.run(fewer)
    decision = report["decision"]
    assert decision["difference"]["value"] < 0
    assert not decision["activated"]
    assert "answers" in decision["reason"]
    assert bench.calibrations.any_active() == [first]


async def test_calibration_is_compared_with_one_activated_during_its_fit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another replica or an operator."""
    first, _ = await bench.run(made_rows(), JobOptions(activate="never"))
    succeed, compared = bench.jobs.succeed, list[int]()

    async def late(*given: Any, **more: Any) -> None:
        compared.append(more["compared_at"])
        if len(compared) == 1:
            await bench.calibrations.activate(first.id)
        await succeed(*given, **more)

    monkeypatch.setattr(bench.jobs, "succeed", late)
    second, report = await bench.run(made_rows(), JobOptions(activate="always"))
    assert compared == [0, 1]
    assert report["decision"]["against"] == first.id
    assert bench.calibrations.any_active() == [second]


async def test_a_damaged_active_calibration_is_replaced(bench: Bench, tmp_path: Path) -> None:
    damaged, _ = await bench.run(made_rows(), JobOptions(activate="always"))
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute("UPDATE calibrations SET body = '{}'")
    async with bench_in(tmp_path, FakeLLM()) as restarted:
        made, report = await restarted.run(made_rows(), JobOptions(activate="always"))
        assert report["decision"]["against"] is None
        assert restarted.calibrations.any_active() == [made] != [damaged]


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
