"""The result types match the contract, and accept fields of newer services."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import eigencal

ROOT = Path(__file__).parents[2]
GENERATOR = ROOT / "clients" / "python" / "scripts" / "generate.py"
PACKAGE = Path(eigencal.__file__).parent
EXAMPLE = json.loads((ROOT / "service" / "http" / "examples.json").read_text())


def test_generated_types_match_the_contract(tmp_path: Path) -> None:
    subprocess.run([sys.executable, GENERATOR, tmp_path], check=True, timeout=300)
    for name in ("types.py", "_requests.py"):
        assert (tmp_path / name).read_text() == (PACKAGE / name).read_text(), "run: make openapi-models"


@pytest.mark.parametrize("name", EXAMPLE)
def test_real_responses_are_parsed_completely(name: str) -> None:
    response = EXAMPLE[name]["response"]
    score = eigencal.Score.model_validate_json(json.dumps(response))
    assert json.loads(score.model_dump_json(exclude_unset=True)) == response
    assert hash(score) == hash(eigencal.Score.model_validate(response))


def test_a_newer_services_fields_and_values_are_kept() -> None:
    body = EXAMPLE["prompt"]["response"] | {"of_tomorrow": {"a": 1}}
    body["calibration"] = {
        "id": "cal_1", "origin": "own", "method": "of_tomorrow", "temperature": 1.0, "depolarization": 0.0,
        "created_at": "2026-01-01T00:00:00Z", "kernel": "facts",
    }  # fmt: skip
    score = eigencal.Score.model_validate(body)
    assert (score.model_extra or {})["of_tomorrow"] == {"a": 1}
    assert score.calibration is not None and score.calibration.method == "of_tomorrow"


def test_kept_score_has_the_fields_of_a_score() -> None:
    response = EXAMPLE["prompt"]["response"]
    kept = eigencal.KeptScore.model_validate({**response, "status": "scored"})
    assert (kept.lambda_max, kept.warnings) == (
        response["lambda_max"],
        eigencal.Score.model_validate(response).warnings,
    )
    assert eigencal.KeptScore(id="scr_1", status="pending").lambda_max is None
    assert eigencal.KeptScore.model_fields.keys() >= eigencal.Score.model_fields.keys()
