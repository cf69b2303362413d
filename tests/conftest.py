"""Shared fixtures. The recorded data next to the checkout and the weights may be absent."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from tests.support.postgres import Cluster, cluster
from tests.support.workers import workers

# SQLite waits for the disk at each commit. Files in memory, if there is room, save half of the time.
MEMORY = Path("/dev/shm")
ROOM = 8 * 2**30  # bytes
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM and "TMPDIR" not in os.environ:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)
# One thread: spectra are small, and the cores are needed by tests that start servers.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Only its own tests wait for it.
os.environ.setdefault("EIGENCAL_GET_TO_KNOW", "false")
# The duration of an example depends on the machine.
hypothesis_settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("any machine")
ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "data"


@pytest.hookimpl(optionalhook=True)  # pytest-xdist's
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of processes for `-n auto`."""
    return workers(os.cpu_count() or 1, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Return the event loop of all asynchronous tests."""
    return "asyncio"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of recorded data."""
    if not (SHARED / "golden.json").exists():
        pytest.skip("the recorded data are not beside this checkout")
    return SHARED


@pytest.fixture(scope="session")
def golden(shared_data: Path) -> dict[str, Any]:
    """Return numbers computed independently from the recorded data."""
    return json.loads((shared_data / "golden.json").read_text())


@pytest.fixture(scope="session")
def recorded(shared_data: Path) -> dict[str, Any]:
    """Return the recorded TriviaQA test answers: rows, and arrays emb, S, Y."""
    name = "triviaqa_test_smollm2_m20"
    rows = [json.loads(line) for line in (shared_data / f"{name}.jsonl").read_text().splitlines()]
    with np.load(shared_data / f"{name}.npz") as arrays:
        return {"rows": rows, **{key: arrays[key] for key in ("emb", "S", "Y")}}


@pytest.fixture(scope="module")
def postgres() -> Iterator[Cluster]:
    """Return a PostgreSQL server that runs for the tests of a file."""
    with cluster() as running:
        yield running
