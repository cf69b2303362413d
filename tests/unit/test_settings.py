"""Settings: all documented, and invalid ones refused by name."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.app import build_llm, own_keys, serving_of
from service.cli import cli
from service.settings import Settings, unknown_variables
from tests.support.fakes import FakeEmbedder
from tools.settings_table import table

ROOT = Path(__file__).parents[2]


def test_documented_table_matches_the_settings() -> None:
    assert table() in (ROOT / "docs" / "operating.md").read_text(), "run: python -m tools.settings_table"


def test_every_setting_named_anywhere_exists() -> None:
    variables = {f"EIGENCAL_{name.upper()}" for name in Settings.model_fields}
    # Read only by tests and by the clients.
    variables |= {"EIGENCAL_TEST_WEIGHTS_DIR", "EIGENCAL_URL", "EIGENCAL_KEY"}
    paths = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), ROOT / "docker-compose.yml"]
    named = {
        path: set(re.findall(r"EIGENCAL_[A-Z_]*[A-Z]\b(?!_)", path.read_text()))
        for path in [*paths, ROOT / "Makefile"]
    }
    assert named[ROOT / "README.md"] and named[ROOT / "docker-compose.yml"]
    for path, names in named.items():
        assert names <= variables, f"{path.name}: {names - variables}"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("LLM_URL", "http://[::1", "EIGENCAL_LLM_URL cannot be read"),
        ("EMBEDDER_URL", "127.0.0.1:8002", "http://"),
        ("EMBEDDER", "", "EIGENCAL_EMBEDDER: Name an embedder"),
        ("DATABASE_URL", "store.db", "database URL"),
        ("PROMPT_TEMPLATE", "no place", "{prompt}"),
        ("DATA_DIR", __file__, "File exists"),
        ("STOP", "newline", "EIGENCAL_STOP"),
        ("NUM_SAMPLES", "1", "EIGENCAL_NUM_SAMPLES"),
        ("SCORE_KEY", "secret\n", "EIGENCAL_SCORE_KEY: The key begins or ends with white space"),
        ("LLM_API_KEY", "schlüssel", "EIGENCAL_LLM_API_KEY: The key holds a character that cannot be sent"),
        ("STOP", '["\\n", ""]', "EIGENCAL_STOP, item 2: String should have at least 1 character"),
    ],
)
def test_invalid_settings_end_with_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv("EIGENCAL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("EIGENCAL_PORT", "0")
    monkeypatch.setenv(f"EIGENCAL_{name}", value)
    result = CliRunner().invoke(cli, ["serve"])
    assert result.exit_code == 2
    assert said in result.output
    assert result.output.count("\n") == 1


def test_a_bare_prompt_and_a_conversation_share_their_calibrations(tmp_path: Path) -> None:
    settings = Settings(llm_model="m", data_dir=tmp_path)
    prompt, conversation = own_keys(serving_of(settings), build_llm(settings), FakeEmbedder())
    assert prompt == conversation


def test_unknown_variables_are_those_with_our_prefix_that_are_no_settings() -> None:
    names = ["PATH", "EIGENCAL_PORT", "eigencal_host", "EIGENCAL_TEST_WEIGHTS_DIR"]
    unknown = ["EIGENCAL_EMBEDER", "EIGENCAL_IMAGE_TAG", "eigencal_prot"]
    assert unknown_variables([*names, *unknown]) == unknown


def test_mistyped_setting_gives_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("EIGENCAL_HOST", "192.0.2.1")  # the end of the start
    monkeypatch.setenv("EIGENCAL_NUM_SAMPELS", "40")
    monkeypatch.setenv("EIGENCAL_OTHERWISE", "not ours")
    result = CliRunner().invoke(cli, ["serve"])
    assert "EIGENCAL_HOST" in result.output
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "EIGENCAL_NUM_SAMPELS is not a setting and is ignored.",
        "EIGENCAL_OTHERWISE is not a setting and is ignored.",
    ]
