"""The address is taken before anything is loaded, told where it cannot be had, opened once all is ready."""

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from typer.testing import CliRunner

from service.cli import OF_THE_WIRE, _log_from, cli
from service.server import AddressError, bound, run

ROOT = Path(__file__).parents[2]
# Servers elsewhere, and not up: nothing to load, nothing to wait for.
REMOTE = {"EIGENCAL_LLM_BACKEND": "vllm", "EIGENCAL_EMBEDDER_URL": "http://127.0.0.1:9"}


@contextmanager
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def test_a_port_in_use_is_told_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with taken() as port:
        monkeypatch.setenv("EIGENCAL_PORT", str(port))
        monkeypatch.setenv("EIGENCAL_DATA_DIR", str(tmp_path / "not-made"))
        result = CliRunner().invoke(cli, ["serve"])
    assert result.exit_code == 2
    assert f"EIGENCAL_PORT={port}" in result.output and "EIGENCAL_HOST=127.0.0.1" in result.output
    assert result.output.count("\n") == 1 and "in use" in result.output
    assert not (tmp_path / "not-made").exists()


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host", "x" * 64 + ".invalid"])
def test_an_address_that_is_none_of_ours_is_named(host: str) -> None:
    with pytest.raises(AddressError, match=f"EIGENCAL_HOST={host} EIGENCAL_PORT=0 .*[^: ]\\.$"):
        with bound(host, 0):
            pass


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", ""])
def test_port_0_is_one_free_port_on_every_address_and_refuses_until_served(host: str) -> None:
    with bound(host, 0) as sockets:
        ports = {one.getsockname()[1] for one in sockets}
        assert len(ports) == 1 and 0 not in ports
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", *ports))
        for one in sockets:
            one.listen()
        socket.create_connection(("127.0.0.1", *ports)).close()
    assert all(one.fileno() == -1 for one in sockets)


def test_a_name_may_have_addresses_that_this_machine_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 0)) for ip in ("192.0.2.1", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with bound("both", 0) as sockets:
        assert [one.getsockname()[0] for one in sockets] == ["127.0.0.1"]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_of_two_that_started_at_once_the_later_one_says_so(
    caplog: pytest.LogCaptureFixture, loop: str
) -> None:
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while len(heard) < 2:
            heard.append((await receive())["type"])
            await send({"type": f"{heard[-1]}.complete"})

    with bound("127.0.0.1", 0) as first:
        port = first[0].getsockname()[1]
        with bound("127.0.0.1", port) as second:
            first[0].listen()
            config = uvicorn.Config(app, port=port, lifespan="on", log_config=None, loop=loop)
            with pytest.raises(SystemExit) as ended:
                run(config, second)
    assert ended.value.code == 2
    assert f"EIGENCAL_PORT={port}" in caplog.text
    assert heard == ["lifespan.startup", "lifespan.shutdown"]


@pytest.fixture(params=["127.0.0.1", "::1"])
def host(request: pytest.FixtureRequest) -> str:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        with closing(socket.socket(family)) as probe:
            probe.bind((request.param, 0))
    except OSError:
        pytest.skip(f"this machine has no {request.param}")
    return request.param


def test_the_process_says_where_it_listens_answers_there_and_stops_cleanly(host: str, tmp_path: Path) -> None:
    settings = REMOTE | {"EIGENCAL_HOST": host, "EIGENCAL_PORT": "0", "EIGENCAL_DATA_DIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-m", "service"],
        cwd=ROOT,
        env=os.environ | settings,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "running on" in line)
        url = said.split("running on ")[1].split()[0]
        assert httpx.get(f"{url}/healthz", trust_env=False, timeout=60).status_code == 200
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert process.returncode == -signal.SIGTERM
    assert "Application shutdown complete" in rest and "Traceback" not in rest


def test_what_is_no_http_fills_no_log() -> None:
    log = logging.getLogger("uvicorn.error")
    before = list(log.filters)
    try:
        _log_from("info")
        records = [log.makeRecord(log.name, 30, "", 0, text, (), None) for text in (*OF_THE_WIRE, "Other.")]
        assert [record.msg for record in records if log.filter(record)] == ["Other."]
    finally:
        log.filters = before
