"""Fixtures of the adapters' tests."""

from pathlib import Path

import pytest

from service.adapters.weights.fetch import find_file
from service.adapters.weights.table import SMOLLM2

WEIGHTS = Path(__file__).parents[3] / "data" / "weights"


@pytest.fixture(scope="session")
def llm_weights() -> Path:
    """The folder with the embedded LLM's weights, as `make test` fetches them."""
    if find_file(SMOLLM2, WEIGHTS) is None:
        pytest.skip("the weights of the embedded LLM are not fetched: make test")
    return WEIGHTS
