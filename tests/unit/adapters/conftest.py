"""Fixtures of the adapters' tests."""

from pathlib import Path

import pytest

from service.adapters.weights.fetch import find_file
from service.adapters.weights.table import SMOLLM2
from tests.support.postgres import Cluster

WEIGHTS = Path(__file__).parents[3] / "data" / "weights"


@pytest.fixture(scope="session")
def llm_weights() -> Path:
    """The folder with the embedded LLM's weights, as `make test` fetches them."""
    if find_file(SMOLLM2, WEIGHTS) is None:
        pytest.skip("the weights of the embedded LLM are not fetched: make test")
    return WEIGHTS


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a new database, of each kind that the store runs on."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'folder' / 'store.db'}"
    running: Cluster = request.getfixturevalue("postgres")
    return running.database()
