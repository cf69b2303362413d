"""The evidence map in a study and by number of answers matches independently computed figures."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.maps import served_figures
from lab.two_files import TwoFiles
from service.report.report import fit_parts
from service.spectral.dev_set import risks, served_lambda_max
from service.spectral.fit import Method, fit
from service.spectral.reliability import auroc, projection_brier
from tests.golden.test_golden_evaluation import split

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def golden_figures(shared_data: Path) -> dict[str, Any]:
    return json.loads((shared_data / "golden_evidence.json").read_text())["by_first_answers"]


@pytest.fixture(scope="module")
def bench(recorded: dict[str, Any]) -> TwoFiles:
    """Fit on rows 0-149, test on rows 150-399, with 20 answers."""
    return TwoFiles(split(recorded, slice(0, 150), tells=True), split(recorded, slice(150, 400), tells=True))


def test_the_fit_and_its_risks(bench: TwoFiles, golden_figures: dict[str, Any]) -> None:
    fits = fit_parts(bench.fitted)
    fit, expected = fits["evidence"], golden_figures["20"]["evidence"]
    for part, letter in ((fit["temperature"], "T"), (fit["intercept"], "a"), (fit["slope"], "b")):
        assert part == pytest.approx(expected[letter], abs=1e-3)
    assert fit["risk"] == pytest.approx(expected["risk_fit"], abs=1e-5)
    assert fit["cv_risk"] < fits["depolarized"]["cv_risk"]


def test_served_values(bench: TwoFiles, golden_figures: dict[str, Any]) -> None:
    (row, _), expected = served_figures(bench, "evidence"), golden_figures["20"]["evidence"]
    assert row["risk"] == pytest.approx(expected["risk_test"], abs=1e-5)
    assert row["projection_brier"] == pytest.approx(expected["projection_brier"], abs=5e-3)
    assert row["projection_ece"] == pytest.approx(expected["projection_ece"], abs=5e-3)
    assert row["auroc_lambda_max"]["value"] == pytest.approx(expected["auroc_lambda_max"], abs=5e-3)
    assert row["auroc_entropy"]["value"] == pytest.approx(expected["auroc_entropy"], abs=5e-3)


@pytest.mark.parametrize(
    ("m", "name"),
    [(1, "evidence"), *((m, name) for m in (2, 3, 5, 10, 20) for name in ("depolarized", "evidence"))],
)
def test_by_number_of_answers(bench: TwoFiles, golden_figures: dict[str, Any], m: int, name: Method) -> None:
    dev, test = (split_.rows.at(m, one_text=True) for split_ in (bench.dev, bench.test))
    map_, expected = fit(dev.rows, name).map, golden_figures[str(m)][name]
    largest = served_lambda_max(map_, test.rows)
    assert risks(map_, test.rows).mean() == pytest.approx(expected["risk_test"], abs=1e-5)
    brier = projection_brier(largest, np.clip(test.rows.alignment[:, 0], 0.0, 1.0))
    assert brier == pytest.approx(expected["projection_brier"], abs=1e-6)
    assert auroc(largest, test.right) == pytest.approx(expected["auroc_lambda_max"], abs=1e-6)
