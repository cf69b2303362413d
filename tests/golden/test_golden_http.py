"""The golden numbers over HTTP, with the real application and store; recorded answers as `samples`."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest

from lab.vectors import spectrum
from service.app import create_app
from service.settings import Settings
from service.spectral.reliability import reliability_diagram
from tests.support.alignment import reference_alignment
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.following import followed
from tests.support.reports import FEW

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.shared


def spoken(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row in which blank answers have a text: the golden numbers include their vectors."""
    return row | {"samples": [text.strip() or "(nothing)" for text in row["samples"]]}


@asynccontextmanager
async def client(folder: Path, embedder: FakeEmbedder | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of the application. embedder: None for the paper's."""
    settings = Settings(
        data_dir=folder,
        embedder=str(ROOT / "data" / "weights" / "all-mpnet-base-v2"),
        kernel="paper",
    )
    app = create_app(settings, llm=FakeLLM(), embedder=embedder, resamples=FEW)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=600) as made:
            yield made


@pytest.fixture(scope="module")
async def http(
    recorded: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application with the vectors that the paper's embedder was recorded to give."""
    vectors: dict[str, Any] = {}
    for row, samples, reference in zip(recorded["rows"], recorded["S"], recorded["Y"], strict=True):
        vectors |= zip(spoken(row)["samples"], recorded["emb"][samples], strict=True)
        vectors[row["reference"].strip()] = recorded["emb"][reference]
    embedder = FakeEmbedder(768, vectors=vectors)
    async with client(tmp_path_factory.mktemp("data"), embedder) as made:
        yield made


async def calibrated(http: httpx.AsyncClient, rows: list[dict[str, Any]], **options: str) -> dict[str, Any]:
    """Post rows with their samples, follow the job to its end, and return the calibration."""
    content = "".join(json.dumps(row) + "\n" for row in rows)
    response = await http.post("/calibrate", files={"file": ("dev.jsonl", content)}, data=options)
    assert response.status_code == 202, response.text
    job = response.json()
    job = await followed(http, job["id"])
    assert job["state"] == "succeeded", job
    return (await http.get(f"/calibrations/{job['calibration_id']}")).json()


@pytest.mark.mpnet
async def test_spectra(tmp_path: Path, recorded: dict[str, Any], golden: dict[str, Any]) -> None:
    """With the embedder itself."""
    assert golden["first_rows"]
    async with client(tmp_path) as http:
        for row, expected in zip(recorded["rows"], golden["first_rows"], strict=False):
            body = {"samples": row["samples"]}
            score = (await http.post("/score", json=body)).json()
            assert score["lambda_max"] == pytest.approx(expected["lambda_max"], abs=1e-6)
            assert score["entropy"] == pytest.approx(expected["entropy"], abs=1e-5)


async def test_both_maps_and_their_served_values(
    http: httpx.AsyncClient, recorded: dict[str, Any], golden: dict[str, Any]
) -> None:
    first, last = golden["fit_rows"]
    rows = [spoken(row) for row in recorded["rows"][first:last]]
    ours = await calibrated(http, rows, source_label="paper", method="depolarized", activate="always")
    theirs = await calibrated(http, rows, source_label="paper", method="temperature", activate="never")
    assert ours["temperature"] == pytest.approx(golden["depolarized"]["T"], abs=1e-3)
    assert ours["depolarization"] == pytest.approx(golden["depolarized"]["gamma"], abs=1e-3)
    assert theirs["temperature"] == pytest.approx(golden["temperature"]["T"], abs=1e-3)
    for entry, expected in ((ours, golden["depolarized"]), (theirs, golden["temperature"])):
        address = f"/calibrations/{entry['id']}/report"
        report = (await http.get(address, headers={"Accept": "application/json"})).json()
        assert report["data"]["rows_full"] == last - first
        fitted = report["fits"][entry["method"]]
        assert fitted["risk"] == pytest.approx(expected["risk_fit"], abs=1e-6)
    first, last = golden["test_rows"]
    served: dict[str, list[float]] = {"raw": [], "depolarized": [], "temperature": []}
    for row in map(spoken, recorded["rows"][first:last]):
        body = {"samples": row["samples"], "source_label": "paper"}
        active = (await http.post("/score", json=body)).json()
        named = (await http.post("/score", json={**body, "calibration": theirs["id"]})).json()
        assert active["calibration"]["id"] == ours["id"] and named["calibration"]["id"] == theirs["id"]
        served["raw"].append(active["uncalibrated"]["lambda_max"])
        served["depolarized"].append(active["lambda_max"])
        served["temperature"].append(named["lambda_max"])
    c1 = [first_alignment(recorded, row) for row in range(first, last)]
    figures = {
        name: reliability_diagram(np.array(values), np.array(c1)).ece for name, values in served.items()
    }
    assert figures["raw"] == pytest.approx(golden["raw"]["projection_ece"], abs=5e-3)
    assert figures["depolarized"] == pytest.approx(
        golden["depolarized"]["served"]["projection_ece"], abs=5e-3
    )
    theirs_golden = golden["temperature"]["served_on_sample_spectrum"]["projection_ece"]
    assert figures["temperature"] == pytest.approx(theirs_golden, abs=5e-3)


async def test_evidence(http: httpx.AsyncClient, recorded: dict[str, Any], shared_data: Path) -> None:
    """The default method for the recorded rows with log-probabilities."""
    golden_evidence = json.loads((shared_data / "golden_evidence.json").read_text())["by_first_answers"]["20"]
    rows = [spoken(row) for row in recorded["rows"][:150]]
    calibration = await calibrated(http, rows, source_label="recorded", activate="always")
    assert (calibration["method"], calibration["fingerprint"]["evidence"]) == ("evidence", "supplied")
    assert [score_["num_samples"] for score_ in calibration["evidence"]] == list(range(1, 21))
    last = [
        calibration["evidence"][-1][name] for name in ("temperature", "evidence_intercept", "evidence_slope")
    ]
    assert last == pytest.approx([golden_evidence["evidence"][name] for name in ("T", "a", "b")], abs=1e-3)
    for row, expected in zip(recorded["rows"], golden_evidence["first_rows"], strict=False):
        body = {"samples": row["samples"], "logprobs": row["logprob"], "source_label": "recorded"}
        score = (await http.post("/score", json=body)).json()
        assert score["calibration"]["method"] == "evidence"
        assert score["evidence"]["missing_mass"] == pytest.approx(expected["missing_mass"], abs=1e-9)


def first_alignment(recorded: dict[str, Any], row: int) -> float:
    """Return c_1 of a row from the recorded vectors."""
    answers, reference = recorded["emb"][recorded["S"][row]], recorded["emb"][recorded["Y"][row]]
    c, _ = reference_alignment(spectrum(answers), answers, reference[None])
    return float(c[0])
