"""The packaged default calibration matches the recorded sets and independently computed figures."""

import json
from pathlib import Path

import numpy as np
import pytest

from service.calibration.default import figures_file, packaged
from service.embedding.port import PAPER
from tools.default_calibration import LARGEST, SETS, SIZES, Recorded, figures


@pytest.fixture(scope="module")
def made(shared_data: Path) -> dict:
    return figures(Recorded(SETS, PAPER), Recorded(SETS[:1], PAPER), PAPER)


def test_packaged_figures_match_the_recorded_sets(made: dict) -> None:
    packed = json.loads(figures_file(PAPER).read_text())
    for method, table in made["maps"].items():
        assert packed["maps"][method]["sizes"] == table["sizes"]
        for name in ("parameters", "hessians"):
            for ours, theirs in zip(packed["maps"][method][name], table[name], strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("m", SIZES)
def test_evidence_map_matches_the_independent_fit(shared_data: Path, m: int) -> None:
    golden = json.loads((shared_data / "defaults.json").read_text())[str(m)]
    prior = packaged(PAPER).prior("evidence", m)
    assert np.exp(prior.center[0]) == pytest.approx(golden["T"], abs=1e-3)
    assert prior.center[1:] == pytest.approx([golden["a"], golden["b"]], abs=1e-3)
    np.testing.assert_allclose(prior.hessian, golden["hessian_logT_a_b"], atol=1e-3)


def test_parameters_are_interpolated_linearly_in_log_m() -> None:
    low, high = packaged(PAPER).prior("evidence", 10), packaged(PAPER).prior("evidence", 20)
    share = np.log(14 / 10) / np.log(2)
    between = packaged(PAPER).prior("evidence", 14)
    np.testing.assert_allclose(between.center, (1 - share) * low.center + share * high.center)
    np.testing.assert_allclose(between.hessian, (1 - share) * low.hessian + share * high.hessian)
    assert (
        packaged(PAPER).prior("evidence", 200).center == packaged(PAPER).prior("evidence", LARGEST).center
    ).all()


def test_zero_weight_gives_no_prior() -> None:
    assert packaged(PAPER).prior("evidence", 3, weight=0) is None
