"""Environments that hold one wheel each; they are made once."""

import pytest

from benchmarks.processes import free_port
from tests.dist.installed import SERVICE, Installed, installed


@pytest.fixture(scope="session")
def service_alone(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The service with its embedded LLM, and the weights of `make run`, fetched as it fetches them."""
    settings = {"EIGENCAL_PORT": str(free_port()), "EIGENCAL_EMBEDDER": "all-MiniLM-L6-v2"}
    made = installed(SERVICE.wheel, tmp_path_factory, extra="embedded", **settings)
    made.run("eigencal-service", "weights", "fetch", "all-MiniLM-L6-v2", "SmolLM2-135M-Instruct")
    return made
