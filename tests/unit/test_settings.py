"""Settings: every one documented, bad ones refused by name."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from service.cli import cli
from service.settings import Settings
from service.settings_table import table

ROOT = Path(__file__).parents[2]


def test_the_documented_table_is_the_real_one() -> None:
    assert table() in (ROOT / "docs" / "operating.md").read_text(), "run: python -m service settings"


def test_every_setting_named_anywhere_exists() -> None:
    known = {f"EIGENCAL_{name.upper()}" for name in Settings.model_fields}
    # Read by tests only.
    known |= {"EIGENCAL_TEST_WEIGHTS_DIR"}
    for path in [
        ROOT / "README.md",
        ROOT / "Makefile",
        *ROOT.glob("docs/**/*.md"),
        ROOT / "docker-compose.yml",
    ]:
        if path.exists():
            named = set(re.findall(r"EIGENCAL_[A-Z_]*[A-Z]", path.read_text()))
            assert named <= known, f"{path.name}: {named - known}"


def test_a_bad_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EIGENCAL_NUM_SAMPLES", "1")
    with pytest.raises(ValidationError):
        Settings()
    result = CliRunner().invoke(cli, ["serve"])
    assert result.exit_code == 2
    assert "EIGENCAL_NUM_SAMPLES" in result.output


def test_few_shot_text_stops_at_a_newline() -> None:
    assert Settings(llm_backend="embedded").default_stop(messages=False) == ("\n",)
    assert Settings(llm_backend="embedded").default_stop(messages=True) == ()
    assert Settings(llm_backend="vllm").default_stop(messages=False) == ()
    assert Settings(llm_backend="vllm", stop=["."]).default_stop(messages=True) == (".",)
