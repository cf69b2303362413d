"""Fixtures of databases, and a limit of time."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.postgres import Cluster


@pytest.fixture
async def bounded() -> AsyncIterator[None]:
    """End a test that waits for ever. A guard only: the machine may be busy."""
    async with asyncio.timeout(300):
        yield


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
