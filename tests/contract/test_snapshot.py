"""The committed contract is served, and it never changes without a new version."""

import json
import re
from pathlib import Path

import pytest

from service import __version__
from tools.contract import UnbumpedError, commit, contract_hash, contract_text

CLIENTS = Path(__file__).parents[2] / "clients"


def test_the_committed_document_is_the_one_served() -> None:
    committed = (CLIENTS / "openapi.json").read_text()
    assert committed == contract_text(), "run: make openapi"


def test_a_changed_contract_has_a_new_version() -> None:
    """`openapi.versions.json` maps each version to the hash of its contract, the version left out."""
    versions = json.loads((CLIENTS / "openapi.versions.json").read_text())
    assert __version__ in versions, f"no entry for {__version__}; run: make openapi"
    assert versions[__version__] == contract_hash(contract_text()), (
        "the contract changed: raise __version__, then run: make openapi"
    )


def test_a_changed_contract_is_not_committed_under_its_old_version(tmp_path: Path) -> None:
    (tmp_path / "openapi.versions.json").write_text(json.dumps({__version__: "of another contract"}))
    with pytest.raises(UnbumpedError, match=re.escape(__version__)):
        commit(tmp_path)
    assert not (tmp_path / "openapi.json").exists()
