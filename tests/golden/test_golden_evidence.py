"""Numbers of the `evidence` map, computed independently from recorded answers and log-probabilities."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.text_scores import correct_by_rouge_l
from lab.vectors import Answers, dev_set
from service.spectral.dev_set import AnyMap, DevSpectra, risk, served_lambda_max
from service.spectral.evidence import missing_mass
from service.spectral.fit import (
    DepolarizedFit,
    EvidenceFit,
    cross_validated_risks,
    fit_depolarized,
    fit_evidence,
)
from service.spectral.reliability import auroc, projection_brier, reliability_diagram

pytestmark = pytest.mark.shared
D = 768
NUMBERS = ("1", "2", "3", "5", "10", "20")


@pytest.fixture(scope="module")
def golden_figures(shared_data: Path) -> dict[str, Any]:
    return json.loads((shared_data / "golden_evidence.json").read_text())


def prompts(recorded: dict[str, Any], m: int) -> tuple[list[Answers], list[list[float]]]:
    """Return the first m answers of each row, and their log-probabilities."""
    vectors, made = recorded["emb"], []
    for drawn, reference in zip(recorded["S"][:, :m], recorded["Y"], strict=True):
        distinct, index = np.unique(drawn, return_inverse=True)
        made.append(Answers(vectors[distinct], index, vectors[[reference]]))
    return made, [row["logprob"][:m] for row in recorded["rows"]]


def rows(recorded: dict[str, Any], m: int) -> DevSpectra:
    made, sums = prompts(recorded, m)
    missing = [missing_mass(sum_, row.index) for sum_, row in zip(sums, made, strict=True)]
    return replace(dev_set(made, D), missing_mass=np.array(missing))


class Case:
    """Fitted on rows 0-149, tested on rows 150-399, with the first m answers."""

    def __init__(self, recorded: dict[str, Any], golden_figures: dict[str, Any], m: str) -> None:
        self.m, self.told = m, golden_figures["by_first_answers"][m]
        self.whole = rows(recorded, int(m))
        parts = (self.whole.take(np.arange(*golden_figures[part])) for part in ("fit_rows", "test_rows"))
        self.fit, self.test = parts
        labels = [correct_by_rouge_l(row["answer"], [row["reference"]]) for row in recorded["rows"]]
        self.right = labels[slice(*golden_figures["test_rows"])]
        self.flat: DepolarizedFit = fit_depolarized(self.fit)
        self.evidence: EvidenceFit = fit_evidence(self.fit)


@pytest.fixture(scope="module", params=NUMBERS)
def case(request: pytest.FixtureRequest, recorded: dict[str, Any], golden_figures: dict[str, Any]) -> Case:
    return Case(recorded, golden_figures, request.param)


def entropies(map_: AnyMap, case: Case) -> np.ndarray:
    log_p, log_q = case.test.log_served(map_)
    p = np.exp(log_p)
    inside = np.where(p > 0, p * np.where(p > 0, log_p, 0.0), 0.0).sum(axis=1)
    return -inside - (D - case.test.rank) * np.exp(log_q) * log_q


def served_figures_agree(map_: AnyMap, case: Case, golden_figures: dict[str, Any]) -> None:
    predicted, c1 = served_lambda_max(map_, case.test), np.clip(case.test.alignment[:, 0], 0, 1)
    assert projection_brier(predicted, c1) == pytest.approx(golden_figures["projection_brier"], abs=1e-6)
    assert auroc(predicted, case.right) == pytest.approx(golden_figures["auroc_lambda_max"], abs=1e-6)
    # The recorded figure breaks ties of equal spectra by rounding; here they count half.
    assert auroc(-entropies(map_, case), case.right) == pytest.approx(
        golden_figures["auroc_entropy"], abs=5e-3
    )
    if golden_figures["correlation"] is not None:
        assert np.corrcoef(predicted, c1)[0, 1] == pytest.approx(golden_figures["correlation"], abs=1e-6)
    if golden_figures["projection_ece"] is not None:
        ece = reliability_diagram(predicted, c1).ece
        assert ece == pytest.approx(golden_figures["projection_ece"], abs=1e-6)


def test_missing_masses_of_the_first_rows(case: Case) -> None:
    missing_mass_ = case.whole.missing_mass[:3]
    assert missing_mass_ == pytest.approx([row["missing_mass"] for row in case.told["first_rows"]], abs=1e-12)


def test_the_depolarized_map(case: Case) -> None:
    depolarized, map_ = case.told["depolarized"], case.flat.map
    g = map_.depolarization
    if case.m != "1":  # no temperature with one answer
        assert map_.temperature == pytest.approx(depolarized["T"], abs=1e-6)
    assert np.log(g / (1 - g)) == pytest.approx(depolarized["a"], abs=1e-5)
    assert case.flat.risk == pytest.approx(depolarized["risk_fit"], abs=1e-9)
    assert risk(map_, case.test) == pytest.approx(depolarized["risk_test"], abs=1e-6)
    served_figures_agree(map_, case, depolarized)


def test_the_evidence_map(case: Case) -> None:
    evidence, map_ = case.told["evidence"], case.evidence.map
    assert map_.temperature == pytest.approx(evidence["T"], abs=1e-5)
    assert (map_.intercept, map_.slope) == pytest.approx((evidence["a"], evidence["b"]), abs=1e-5)
    assert case.evidence.risk == pytest.approx(evidence["risk_fit"], abs=1e-9)
    assert risk(map_, case.test) == pytest.approx(evidence["risk_test"], abs=1e-6)
    g = map_.depolarizations(case.fit.missing_mass).mean()
    assert g == pytest.approx(evidence["g_mean"], abs=1e-6)
    served_figures_agree(map_, case, evidence)


def test_fit_is_stationary_and_not_on_a_bound(case: Case) -> None:
    assert case.evidence.at_bound == ()
    assert case.evidence.stationarity_gap < 1e-9
    assert case.evidence.risk < case.flat.risk - 0.03


@pytest.mark.parametrize("name", ["triviaqa_test_smollm2_m20", "triviaqa_dev_smollm2_m40"])
@pytest.mark.parametrize("m", [1, 3, 20])
def test_held_out_risk_falls_on_both_files(shared_data: Path, name: str, m: int) -> None:
    lines = (shared_data / f"{name}.jsonl").read_text().splitlines()
    with np.load(shared_data / f"{name}.npz") as arrays:
        whole = rows({"rows": [json.loads(line) for line in lines], **arrays}, m)
    both = {"d": "depolarized", "e": "evidence"}
    risks = cross_validated_risks(whole, both, np.arange(len(whole)) % 5).risks
    assert risks["e"].mean() < risks["d"].mean() - 0.01
