"""A whole service before a scripted LLM, and the command that asks it."""

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eigencal.cli.app import run
from tests.support.command import Command, Done
from tests.support.openai_server import OpenAIServer, serving_in_thread
from tests.support.services import Service, cities, llm_and_embedder, service

Here = Callable[..., Done]
ADMIN_KEY, SCORE_KEY = "the-admin-key-of-the-tests", "the-score-key-of-the-tests"


@pytest.fixture(scope="package")
def llm() -> Iterator[OpenAIServer]:
    """Return an LLM server that names cities, for questions that end in a number."""
    with serving_in_thread(OpenAIServer(default=llm_and_embedder(cities))) as server:
        yield server


@pytest.fixture(scope="package")
def running(llm: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service that takes keys."""
    folder = tmp_path_factory.mktemp("service")
    url = f"sqlite+aiosqlite:///{folder / 'eigencal.db'}"
    with service(url, llm, folder, admin_key=ADMIN_KEY, score_key=SCORE_KEY) as started:
        started.http.headers["Authorization"] = f"Bearer {ADMIN_KEY}"
        yield started


@pytest.fixture
def bare(tmp_path: Path) -> Command:
    """Return the command, told nothing."""
    return Command(tmp_path)


@pytest.fixture
def command(running: Service, tmp_path: Path) -> Command:
    """Return the command, told service and admin key by its environment."""
    return Command(tmp_path, {"EIGENCAL_URL": str(running.http.base_url), "EIGENCAL_KEY": ADMIN_KEY})


@pytest.fixture
def here(
    running: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Here:
    """Return the same in this process, where nothing hangs on its being one of its own."""
    for name in [name for name in os.environ if name.startswith("EIGENCAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("EIGENCAL_URL", str(running.http.base_url))
    monkeypatch.setenv("EIGENCAL_KEY", ADMIN_KEY)
    monkeypatch.chdir(tmp_path)

    def ran(*arguments: object, stdin: str = "", **env: str | None) -> Done:
        with monkeypatch.context() as changed:
            changed.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
            for name, value in env.items():
                changed.delenv(name) if value is None else changed.setenv(name, value)
            code = run([str(each) for each in arguments])
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return ran
