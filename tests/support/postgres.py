"""A real PostgreSQL cluster for tests marked `postgres`. Postgres refuses to run as root."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest


def _binary(name: str) -> str | None:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(installed[-1]) if installed else shutil.which(name)


def _unprivileged() -> dict[str, Any]:
    return {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Cluster:
    """A running cluster. `database()` creates an empty database and returns its URL."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = 0

    def _run(self, name: str, *args: str) -> None:
        done = subprocess.run(
            [str(_binary(name)), *args],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
            **_unprivileged(),
        )
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        data = str(self._folder / "data")
        self._run("initdb", "-D", data, "-U", "tests", "--auth=trust", "-E", "UTF8", "--no-sync")
        for _ in range(3):  # the free port may be taken before the server binds it
            self._port = _free_port()
            try:
                self.up()
            except AssertionError:
                if "Address already in use" not in (self._folder / "log").read_text():
                    raise
            else:
                return
        raise AssertionError("no port stays free")

    def up(self) -> None:
        """Start the server."""
        options = f"-p {self._port} -k {self._folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        log = str(self._folder / "log")
        patience = ("-w", "-t", "300")
        self._run("pg_ctl", "-D", str(self._folder / "data"), *patience, "-l", log, "-o", options, "start")

    def down(self) -> None:
        """Stop the server immediately."""
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-w", "-m", "immediate", "stop")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Pause all processes of the server: connections stay open, without answers."""
        server = int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        pids = [server, *map(int, children)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def database(self, options: str = "") -> str:
        name = f"t{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} {options}".encode())
        return self._url(name)

    def _url(self, name: str) -> str:
        return f"postgresql://tests@127.0.0.1:{self._port}/{name}"


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Run a cluster in a temporary folder; skip the test if PostgreSQL is not installed."""
    if _binary("initdb") is None:
        pytest.skip("PostgreSQL is not installed")
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        if os.getuid() == 0:
            shutil.chown(folder, "nobody", "nogroup")
        made = Cluster(Path(folder))
        made.start()
        try:
            yield made
        finally:
            made.down()
