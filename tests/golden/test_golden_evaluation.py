"""Figures of the recorded data match independently computed figures."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lab.maps import served_figures
from lab.splits import Split
from lab.text_scores import correct_by_rouge_l
from lab.two_files import TwoFiles
from service.calibration.labels import LabelledRows
from service.calibration.material import assemble
from service.calibration.rows import DevRow
from service.llm.samples import Draw
from service.report.report import fit_parts

pytestmark = pytest.mark.shared
SERVED = {
    "raw": ("raw",),
    "temperature": ("temperature", "served_on_sample_spectrum"),
    "depolarized": ("depolarized", "served"),
}


def stored(number: int, row: dict[str, Any], *, tells: bool) -> DevRow:
    """Return a row with its verdict. An `answer` that is not among the samples has no recorded vector."""
    samples, answer = tuple(row["samples"]), row["answer"]
    made = DevRow(
        number,
        None,
        (row["reference"],),
        prompt=row["prompt"],
        samples=samples,
        answer=answer if answer in samples else None,
        correct=correct_by_rouge_l(answer, [row["reference"]]),
    )
    logprob = row["logprob"] if tells else [None] * len(samples)
    draws = tuple(Draw(text, total_logprob=item) for text, item in zip(samples, logprob, strict=True))
    return replace(made, draws=draws, complete=True)


def places(recorded: dict[str, Any]) -> dict[str, int]:
    """Return the place of each text in the recorded vectors."""
    place: dict[str, int] = {}
    for row, samples, reference in zip(recorded["rows"], recorded["S"], recorded["Y"], strict=True):
        place |= dict(zip(row["samples"], samples.tolist(), strict=True)) | {row["reference"]: int(reference)}
    return place


def vectors(recorded: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the recorded vector of each text."""
    return {text: recorded["emb"][at] for text, at in places(recorded).items()}


def split(recorded: dict[str, Any], part: slice, *, tells: bool = False) -> Split:
    place = places(recorded)
    numbered = list(enumerate(recorded["rows"], start=1))[part]
    rows = [stored(i, row, tells=tells) for i, row in numbered]
    return Split(LabelledRows(assemble(rows, 20, recorded["emb"], place, 768)))


@pytest.fixture(scope="module")
def bench(recorded: dict[str, Any]) -> TwoFiles:
    return TwoFiles(split(recorded, slice(0, 150)), split(recorded, slice(150, 400)))


@pytest.fixture(scope="module")
def expected(golden: dict[str, Any]) -> dict[str, dict[str, float]]:
    results = {}
    for name, path in SERVED.items():
        figures: Any = golden
        for key in path:
            figures = figures[key]
        results[name] = figures
    assert results
    return results


@pytest.fixture(scope="module")
def served(bench: TwoFiles) -> list[dict[str, Any]]:
    return [served_figures(bench, name)[0] for name in bench.maps]


def test_fits(bench: TwoFiles, served: list[dict[str, Any]], golden: dict[str, Any]) -> None:
    fits = fit_parts(bench.fitted)
    paper, ours = fits["temperature"], fits["depolarized"]
    test_risks = {row["map"]: row["risk"] for row in served}
    assert paper["temperature"] == pytest.approx(golden["temperature"]["T"], abs=1e-3)
    assert paper["risk"] == pytest.approx(golden["temperature"]["risk_fit"], abs=1e-6)
    assert test_risks["temperature"] == pytest.approx(golden["temperature"]["risk_test"], abs=1e-5)
    assert ours["depolarization"] is not None
    assert ours["temperature"] == pytest.approx(golden["depolarized"]["T"], abs=1e-3)
    assert ours["depolarization"] == pytest.approx(golden["depolarized"]["gamma"], abs=1e-3)
    assert test_risks["depolarized"] == pytest.approx(golden["depolarized"]["risk_test"], abs=1e-5)


def test_served_figures(served: list[dict[str, Any]], expected: dict[str, dict[str, float]]) -> None:
    assert {row["map"] for row in served} == expected.keys()
    for row in served:
        figures = expected[row["map"]]
        assert row["projection_ece"] == pytest.approx(figures["projection_ece"], abs=1e-5)
        assert row["projection_brier"] == pytest.approx(figures["projection_brier"], abs=1e-5)
        assert row["auroc_lambda_max"]["value"] == pytest.approx(figures["auroc_lambda_max"], abs=1e-3)
        assert row["auroc_entropy"]["value"] == pytest.approx(figures["auroc_entropy"], abs=1e-3)
