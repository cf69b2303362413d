"""The evidence map in a calibration: fitted, chosen, stored and refused."""

import json
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.calibration.fitting import Fitted, fit_all
from service.calibration.material import assemble
from service.calibration.rows import DevRow
from service.calibration.store import SqlCalibrations
from service.embedding.port import log_probabilities
from service.errors import InvalidDevData
from service.jobs.model import JobOptions
from service.jobs.store import SqlJobs
from service.llm.port import Draw
from service.spectral.evidence import EvidenceMap
from tests.support.evidence import SAMPLES, TellingLLM, by_evidence, drawn, material, rows
from tests.support.fakes import FakeEmbedder
from tests.support.pipeline import Bench
from tests.support.reports import FEW
from tests.support.sqlite_store import CopiedDatabase

fit = partial(fit_all, resamples=FEW)


@pytest.fixture(scope="module")
def auto() -> Fitted:
    return fit(material(), "auto")


def test_auto_chooses_the_evidence_map_if_it_is_best(auto: Fitted) -> None:
    means = {name: risk.mean() for name, risk in auto.maps.risks.items()}
    assert list(means) == ["raw", "temperature", "depolarized", "evidence"]
    assert means["evidence"] < min(means["depolarized"], means["temperature"]) - 0.05
    assert auto.method == "evidence"
    assert sorted(auto.evidence_table) == [1, 2, 3, 4]
    assert sorted(auto.parameters) == [2, 3, 4]


@pytest.mark.parametrize("method", ["depolarized", "temperature", "both"])
def test_evidence_does_not_change_plain_maps(method: str) -> None:
    fit_, silent = fit(material(), method), fit(material(drawn(tells=False)), method)
    assert (fit_.method, fit_.parameters) == (silent.method, silent.parameters)
    assert not fit_.evidence_table
    assert "evidence" not in silent.maps.fits
    for name, risk in silent.maps.risks.items():
        assert np.array_equal(risk, fit_.maps.risks[name])


def test_plain_parameters_of_an_evidence_calibration_equal_the_depolarised_map(
    auto: Fitted,
) -> None:
    assert auto.parameters == fit(material(), "depolarized").parameters


def test_active_evidence_calibration_is_compared_as_served(auto: Fitted) -> None:
    table = auto.evidence_table
    active = replace(by_evidence(), num_samples=SAMPLES, parameters=auto.parameters, evidence=table)
    again = fit(material(), "auto", active=active)
    assert list(again.maps.risks)[-1] == "active"
    # Fitted on all rows, it is no worse than maps fitted without a fold.
    assert again.maps.risks["active"].mean() < again.maps.risks["evidence"].mean()
    silent = fit(material(drawn(tells=False)), "auto", active=active)
    assert silent.maps.risks["active"].mean() > again.maps.risks["active"].mean() + 0.05


@pytest.mark.parametrize("spoilt", [None, math.nan, 0.5, math.inf])
def test_auto_falls_back_without_a_logprob(spoilt: float | None) -> None:
    stored = drawn()
    draws = (replace(stored[5].draws[0], total_logprob=spoilt), *stored[5].draws[1:])
    made = material([*stored[:5], replace(stored[5], draws=draws), *stored[6:]])
    fit_ = fit(made, "auto")
    assert fit_.method in ("depolarized", "temperature")
    assert "evidence" not in fit_.maps.fits
    assert str(fit_.rows.why_no_evidence()).startswith("1 of 80 prompts")
    with pytest.raises(InvalidDevData, match="1 of 80 prompts"):
        fit(made, "evidence")


def test_short_row_without_logprobs_is_ignored() -> None:
    stored = drawn()
    short = replace(stored[0], draws=(Draw("answer 0"), Draw("answer 0")))
    assert fit(material([short, *stored[1:]]), "evidence").method == "evidence"


def test_missing_mass_of_zero_and_one_are_fitted() -> None:
    stored = drawn()
    for i, total in ((0, -math.inf), (1, 0.0), (2, 1e-7)):
        stored[i] = replace(stored[i], draws=(replace(stored[i].draws[0], total_logprob=total),) * SAMPLES)
    maps = fit(material(stored), "auto").maps
    assert maps.missing_mass is not None
    assert maps.missing_mass[:3].tolist() == [1 - 1e-4, 1e-4, 1e-4]
    assert np.isfinite(maps.risks["evidence"]).all()


@pytest.mark.parametrize("totals", [(None, -1.0), (math.nan, -1.0), (0.02, -1.0), (math.inf, -1.0)])
def test_invalid_logprob_is_none(totals: tuple[float | None, ...]) -> None:
    assert log_probabilities([Draw("a", total_logprob=total) for total in totals]) is None


@pytest.mark.shared
def test_recorded_rows_match_independent_figures(recorded: dict[str, Any], shared_data: Path) -> None:
    expected = json.loads((shared_data / "golden_evidence.json").read_text())["by_first_answers"]["20"]
    stored, place, vectors = [], {}, []
    for row, vector_of, reference in zip(
        recorded["rows"][:150], recorded["S"][:150], recorded["Y"][:150], strict=True
    ):
        draws = tuple(
            Draw(text.strip(), total_logprob=total)
            for text, total in zip(row["samples"], row["logprob"], strict=True)
        )
        texts = [draw.text for draw in draws]
        for text, number in [*zip(texts, vector_of, strict=True), (row["reference"], reference)]:
            if text not in place:
                place[text] = len(vectors)
                vectors.append(recorded["emb"][number])
        made = DevRow(len(stored) + 1, None, (row["reference"],), prompt=row["prompt"])
        stored.append(replace(made, draws=draws, complete=True))
    fit_ = fit(assemble(stored, 20, np.stack(vectors), place, 768), "auto")
    assert fit_.method == "evidence"
    head = fit_.maps.fits["evidence"]
    assert isinstance(head.map, EvidenceMap)
    assert (head.map.temperature, head.map.intercept, head.map.slope) == pytest.approx(
        (expected["evidence"]["T"], expected["evidence"]["a"], expected["evidence"]["b"]), abs=1e-3
    )
    assert head.risk == pytest.approx(expected["evidence"]["risk_fit"], abs=1e-5)
    assert fit_.evidence_table[20].slope == pytest.approx(head.map.slope, abs=1e-6)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    database = CopiedDatabase(tmp_path)
    calibrations = SqlCalibrations(database)
    yield Bench(SqlJobs(database, calibrations), calibrations, FakeEmbedder(24), TellingLLM(), SAMPLES)
    await database.stop()


async def test_job_creates_and_reports_an_evidence_calibration(bench: Bench) -> None:
    calibration_, report = await bench.run(rows(), JobOptions(activate="always"))
    assert calibration_.method == "evidence"
    assert isinstance(calibration_.evidence[1], EvidenceMap)
    assert sorted(calibration_.evidence) == [1, 2, 3, 4]
    assert calibration_.fingerprint.evidence == "token_sums"
    assert bench.calibrations.active(calibration_.fingerprint.key()) == calibration_
    assert [row["map"] for row in report["served"]] == ["raw", "temperature", "depolarized", "evidence"]
    fit, head = report["fits"]["evidence"], calibration_.evidence[SAMPLES]
    assert fit["slope"]["low"] <= head.slope <= fit["slope"]["high"]
    assert fit["slope"]["value"] == pytest.approx(head.slope, abs=1e-6)
    assert fit["cv_risk"] < report["fits"]["depolarized"]["cv_risk"]
    assert report["calibration"]["evidence"]["evidence_slope"] == head.slope
    assert report["calibration"]["fingerprint"]["evidence"] == "token_sums"
    assert [evidence_parameter["num_samples"] for evidence_parameter in report["evidence_parameters"]] == [
        1,
        2,
        3,
        4,
    ]
    assert report["unfitted"] == {}


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


async def test_caller_logprobs_give_an_evidence_calibration(bench: Bench) -> None:
    calibration_, _ = await bench.run(supplied(), JobOptions(method="evidence"))
    assert (calibration_.fingerprint.source, calibration_.fingerprint.evidence) == ("caller", "supplied")
    vouched, _ = await bench.run(supplied(), JobOptions(drawn_by="service"))
    assert (vouched.fingerprint.source, vouched.fingerprint.evidence) == ("service", "token_sums")


async def test_evidence_upload_without_logprobs_is_refused(
    bench: Bench,
) -> None:
    rows_ = [*supplied()[:70], *supplied(tells=False)[70:]]
    with pytest.raises(InvalidDevData, match="10 rows with samples lack `logprobs`"):
        await bench.jobs.submit(rows_, JobOptions(method="evidence"))
    assert await bench.jobs.latest() == []
    calibration_, _ = await bench.run(rows_)
    assert calibration_.method in ("depolarized", "temperature")
