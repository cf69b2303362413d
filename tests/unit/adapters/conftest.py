"""Fixtures for tests of the adapters."""

from pathlib import Path

import pytest

from service.llm.weights import SMOLLM2, find
from tests.support.postgres import Cluster

WEIGHTS = Path(__file__).parents[3] / "data" / "weights"


@pytest.fixture(scope="session")
def llm_weights() -> Path:
    """Return the folder with the embedded LLM's weights, fetched by `make test`."""
    if find(SMOLLM2, WEIGHTS) is None:
        pytest.skip("the weights of the embedded LLM are not fetched: make test")
    return WEIGHTS


def _new(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{tmp_path / 'folder' / 'store.db'}"
    running: Cluster = request.getfixturevalue("postgres")
    return running.database()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a new database of each supported kind."""
    return _new(request.param, request, tmp_path)


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """Return the address of a new database as `url`; None if the port's fake is used."""
    return None if request.param == "memory" else _new(request.param, request, tmp_path)
