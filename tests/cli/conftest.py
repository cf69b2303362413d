"""The real application with a scripted LLM, and the command that calls it, all in this process."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eigencal.cli.app import app
from tests.support.command import Command, Done
from tests.support.fakes import FakeEmbedder
from tests.support.in_thread import serving_app
from tests.support.openai_server import OpenAIServer, serving_in_thread
from tests.support.services import NUM_SAMPLES, cities, llm_and_embedder

Here = Callable[..., Done]
ADMIN_KEY, SCORE_KEY = "the-admin-key-of-the-tests", "the-score-key-of-the-tests"


@pytest.fixture(scope="module")
def llm() -> Iterator[OpenAIServer]:
    """Return an LLM server that answers questions ending in a number with cities."""
    with serving_in_thread(OpenAIServer(default=llm_and_embedder(cities))) as server:
        yield server


@pytest.fixture(scope="module")
def running(llm: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of the application, which accepts keys."""
    keys = {"admin_key": ADMIN_KEY, "score_key": SCORE_KEY}
    server = {
        "llm_url": llm.url,
        "num_samples": NUM_SAMPLES,
        "llm_slots": 512,
        "self_check": False,  # its calls would come between those that tests count
    }
    folder = tmp_path_factory.mktemp("service")
    with serving_app(folder, llm=None, embedder=FakeEmbedder(16), **server, **keys) as url:
        yield url


def in_process(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Here:
    """Return the command in this process, with the service in its environment."""
    for name in [name for name in os.environ if name.startswith("EIGENCAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(folder)

    def ran(*arguments: object, stdin: str | bytes = "", **env: str | None) -> Done:
        ended = CliRunner(env={"EIGENCAL_URL": url}).invoke(
            app, [str(each) for each in arguments], input=stdin, env=env, catch_exceptions=False
        )
        return Done(ended.exit_code, ended.stdout, ended.stderr)

    return ran


@pytest.fixture
def here(running: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    """Return the command, with service and admin key in its environment."""
    monkeypatch.setenv("EIGENCAL_KEY", "")
    run = in_process(tmp_path, running, monkeypatch)
    return lambda *arguments, **options: run(*arguments, **{"EIGENCAL_KEY": ADMIN_KEY, **options})


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Return the command as a separate process, without settings."""
    return Command(tmp_path)
