"""The evidence map in a calibration: fitted, chosen, stored and refused."""

import math
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from service.calibration.fitting import Fitted, fit_all
from service.calibration.labels import LabelledRows
from service.calibration.rows import DevRow
from service.errors import InvalidDevData
from service.jobs.model import JobOptions
from tests.support.evidence import SAMPLES, TellingLLM, by_evidence, drawn, material, rows
from tests.support.pipeline import Bench, bench_in


@pytest.fixture(scope="module")
def auto() -> Fitted:
    return fit_all(LabelledRows(material()), "auto")


def test_auto_chooses_the_evidence_map_if_it_is_best(auto: Fitted) -> None:
    means = {name: risk.mean() for name, risk in auto.maps.risks.items()}
    assert list(means) == ["raw", "temperature", "depolarized", "evidence"]
    assert means["evidence"] < min(means["depolarized"], means["temperature"]) - 0.05
    assert auto.method == "evidence"
    assert sorted(auto.evidence_table) == [1, 2, 3, 4]
    assert sorted(auto.parameters) == [2, 3, 4]


def test_active_evidence_calibration_is_compared_as_served(auto: Fitted) -> None:
    table = auto.evidence_table
    active = replace(by_evidence(), num_samples=SAMPLES, parameters=auto.parameters, evidence=table)
    again = fit_all(LabelledRows(material()), "auto", active=active)
    assert list(again.maps.risks)[-1] == "active"
    # Fitted on all rows, it is no worse than maps fitted without a fold.
    assert again.maps.risks["active"].mean() < again.maps.risks["evidence"].mean()
    silent = fit_all(LabelledRows(material(drawn(tells=False))), "auto", active=active)
    assert silent.maps.risks["active"].mean() > again.maps.risks["active"].mean() + 0.05


@pytest.mark.parametrize("spoilt", [None, math.nan, 0.5, math.inf])
def test_auto_falls_back_without_a_logprob(spoilt: float | None) -> None:
    stored = drawn()
    draws = (replace(stored[5].draws[0], total_logprob=spoilt), *stored[5].draws[1:])
    made = material([*stored[:5], replace(stored[5], draws=draws), *stored[6:]])
    fit_ = fit_all(LabelledRows(made), "auto")
    assert fit_.method in ("depolarized", "temperature")
    assert "evidence" not in fit_.maps.fits
    assert str(fit_.rows.why_no_evidence()).startswith("1 of 80 prompts")
    with pytest.raises(InvalidDevData, match="1 of 80 prompts"):
        fit_all(LabelledRows(made), "evidence")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench_in(tmp_path, TellingLLM(), SAMPLES) as made:
        yield made


async def test_plain_rows_do_not_replace_an_evidence_calibration(bench: Bench) -> None:
    first, _ = await bench.run(rows(), JobOptions(activate="always"))
    bench.llm.tells = False
    calibration_, report = await bench.run(rows(), JobOptions(seed=1))
    assert calibration_.fingerprint.key() == first.fingerprint.key()
    assert report["decision"]["activated"] is False
    assert "log-probabilities" in report["decision"]["reason"]
    assert bench.calibrations.active(first.fingerprint.key()) == first
    forced, _ = await bench.run(rows(), JobOptions(activate="always"))
    assert bench.calibrations.active(first.fingerprint.key()) == forced


def supplied(*, tells: bool = True) -> list[DevRow]:
    """Return the rows with answers and log-probabilities of a caller."""
    return [
        replace(
            row,
            samples=tuple(draw.text for draw in row.draws),
            logprobs=tuple(draw.total_logprob or 0.0 for draw in row.draws) if tells else None,
        )
        for row in drawn()
    ]


async def test_evidence_upload_without_logprobs_is_refused(
    bench: Bench,
) -> None:
    rows_ = [*supplied()[:70], *supplied(tells=False)[70:]]
    with pytest.raises(InvalidDevData, match="10 rows with samples lack `logprobs`"):
        await bench.jobs.submit(rows_, JobOptions(method="evidence"))
    assert await bench.jobs.latest() == []
    calibration_, _ = await bench.run(rows_)
    assert calibration_.method in ("depolarized", "temperature")


async def test_it_is_not_replaced_without_a_model_of_correctness_either(bench: Bench) -> None:
    right = [replace(row, references=(f"answer {i}",)) for i, row in enumerate(rows())]
    first, _ = await bench.run(right, JobOptions(method="evidence", activate="always"))
    assert first.evidence and not first.selectors
    bench.llm.tells = False
    _, report = await bench.run(right, JobOptions(seed=1))
    assert "log-probabilities" in report["decision"]["reason"]
