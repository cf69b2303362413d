"""An environment with the service's wheel alone, its LLM server and the service in it."""

from collections.abc import Iterator

import pytest

from benchmarks.processes import free_port, running, wait_for
from demo.tour import LLM_DEFAULTS
from tests.release.installed import SERVICE, Installed, installed
from tests.support.services import address


@pytest.fixture(scope="session")
def service_alone(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install the service and the demonstration, and fetch the weights of `make run`."""
    made = installed(SERVICE.wheel, tmp_path_factory, extra="demo", EIGENCAL_EMBEDDER="all-MiniLM-L6-v2")
    made.run("eigencal-service", "weights", "fetch", "all-MiniLM-L6-v2", "SmolLM2-135M-Instruct")
    return made


@pytest.fixture(scope="session")
def llm(service_alone: Installed) -> Iterator[str]:
    """Run the demonstration's LLM server; yield its base URL."""
    port = free_port()
    command = [str(service_alone.bin / "python"), "-m", "demo", "serve", "--port", str(port)]
    with running(
        command, env=service_alone.environment, folder=service_alone.folder, inherit=False
    ) as process:
        wait_for(f"http://127.0.0.1:{port}/health", process, 300)
        yield f"http://127.0.0.1:{port}/v1"


@pytest.fixture(scope="session")
def served(service_alone: Installed, llm: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run the service; yield its address."""
    settings = LLM_DEFAULTS | {"EIGENCAL_GET_TO_KNOW": "false", "EIGENCAL_PORT": "0", "EIGENCAL_LLM_URL": llm}
    command, log = [str(service_alone.bin / "eigencal-service")], tmp_path_factory.mktemp("served") / "log"
    environment = service_alone.environment | settings
    with running(command, env=environment, log=log, folder=service_alone.folder, inherit=False) as process:
        yield address(process, log)
