"""Real servers for the end-to-end tests."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from benchmarks.processes import ROOT, free_port, wait_for
from demo.data import PROMPT_TEMPLATE
from demo.model import converted_model
from tests.support.services import ready
from tests.support.vllm import ENVIRONMENT, VLLM_PYTHON, serve_command

WEIGHTS = ROOT / "data" / "weights"
TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")


class VllmServer:
    """A real vLLM server with tool calls on its own port. It can be killed and restarted."""

    def __init__(self, log: Path, *, host: str = "127.0.0.1") -> None:
        self._host = host
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait until it serves."""
        model = converted_model(WEIGHTS)
        command = [*serve_command(model, self.port, name="smollm2", host=self._host), *TOOLS]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | ENVIRONMENT,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_for(f"{self.url}/health", self._process, 400)

    def kill(self) -> None:
        """Kill the server at once, with engine and workers."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def log_end(self) -> str:
        """Return the end of its log."""
        return self._log.read_text(errors="replace")[-4000:]

    def metric(self, name: str) -> float:
        """Return the sum of a Prometheus metric of the server."""
        lines = httpx.get(f"{self.url}/metrics", timeout=30).text.splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + "{", name + " "))
        )


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """A running vLLM server with the model of the package."""
    if not VLLM_PYTHON.exists():
        pytest.fail("vLLM's environment is missing: make test-vllm")
    server = VllmServer(tmp_path_factory.mktemp("vllm") / "server.log")
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def base_environment(vllm: VllmServer) -> dict[str, str]:
    """Return the settings of a service that samples from the server and uses the paper's embedder."""
    return {
        "EIGENCAL_LLM_URL": f"{vllm.url}/v1",
        "EIGENCAL_LLM_API": "completions",
        "EIGENCAL_PROMPT_TEMPLATE": PROMPT_TEMPLATE,
        "EIGENCAL_STOP": r'["\n"]',
        "EIGENCAL_EMBEDDER": str(WEIGHTS / "all-mpnet-base-v2"),
        "EIGENCAL_MAX_TOKENS": "32",
    }


@pytest.fixture(scope="module")
def service_url(base_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run one shared service in a separate process, because its embedder takes long to load."""
    with ready(tmp_path_factory.mktemp("service"), base_environment) as url:
        yield url
