"""Calibrating on the command line: jobs, calibrations and reports."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Here
from tests.support.services import questions

ROWS = 30


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    path = tmp_path / "dev.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in questions(ROWS)))
    return path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the pages opened in the browser."""
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: shown.append(url) or True)
    return shown


def test_calibrate_from_file_to_report(here: Here, dev: Path, tmp_path: Path, opened: list[str]) -> None:
    assert here("calibrations", "--active").out == "no calibration is active\n"
    done = here("calibrate", dev, "--watch", "--name", "mine", "--activate", "always", "--json")
    assert done.code == 0, done.err
    job = done.json
    assert (job["state"], job["name"]) == ("succeeded", "mine")
    # The stages shown depend on their speed; the last one is always shown.
    assert "reporting: 1 of 1" in done.err, "progress is on stderr"

    calibration = job["calibration_id"]
    head, row, *_ = here("calibrations").out.splitlines()
    assert head.split()[:3] == ["id", "name", "active"]
    assert row.split()[:3] == [calibration, "mine", "yes"]
    assert [each["id"] for each in here("calibrations", "--active", "--json").json] == [calibration]
    assert here("activate", calibration).out == f"{calibration} is active\n"
    assert f"calibration {calibration}" in here("score", "question 1").out

    assert here("report", calibration, "--json").json["calibration"]["id"] == calibration
    output = here("report", calibration).out
    assert output.startswith(f"{calibration} mine: ")
    assert "30 of 30 rows were usable" in output
    assert job["decision"]
    assert here("jobs", job["id"], "--watch").out.endswith(f"\n{job['decision']}\n")
    assert "active now: yes" in output
    opening = here("report", calibration, "--json").json["opening"]
    lines = [f"{opening['verdict']} {opening['safe']}", f"promise: {opening['promise']}"]
    assert "\n".join(["", *lines, f"answers to draw: {opening['answers']}", ""]) in output
    page = tmp_path / "report.html"
    assert here("report", calibration, "--out", page).out == f"{page}\n"
    assert page.read_text().startswith("<!doctype html>")
    shown = here("report", calibration, "--open", "--json").json["page"]
    assert opened == [Path(shown).as_uri()]
    assert Path(shown).read_text().startswith("<!doctype html>")

    head, row, *_ = here("jobs").out.splitlines()
    assert row.split()[:4] == [job["id"], "calibrate", "mine", "succeeded"]
    assert here("jobs", job["id"], "--json").json["calibration_id"] == calibration
    assert here("jobs", job["id"], "--cancel").code == 6, "it has ended: a conflict"
    assert here("calibrations", "history").out.splitlines()[1].split()[2] == calibration
    corrections = tmp_path / "corrections.jsonl"
    corrections.write_text('{"line": 1, "correct": false}\n')
    corrected = here("calibrations", "correct", calibration, corrections, "--activate", "never", "--json")
    assert (corrected.code, corrected.json["kind"]) == (0, "calibrate"), corrected.err
    corrections.write_text("7\n")
    assert here("calibrations", "correct", calibration, corrections).code == 2


def test_bad_rows_are_named(here: Here, tmp_path: Path) -> None:
    dev = tmp_path / "dev.jsonl"
    rows = [*questions(ROWS), {"prompt": "x"}, {"reference": "y"}]
    dev.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = here("calibrate", dev)
    assert done.code == 6
    assert done.err.startswith("eigencal: invalid_dev_data: ")
    assert "line 31, reference: " in done.err and "line 32, prompt: " in done.err

    dev.write_text("".join(json.dumps({"promt": f"x{i}", "reference": "y"}) + "\n" for i in range(30)))
    done = here("calibrate", dev)
    assert done.code == 6
    assert "line 20, promt: " in done.err and "line 21, " not in done.err
