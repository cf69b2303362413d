"""Prove the Dockerfile without a Docker engine: its own steps in clean roots, then the service as it says.

    sudo python docker/prove.py --work /tmp/prove [--bind DIR ...]

What is built is started as docker-compose.yml confines it (see clean_root), fetches its weights, answers the
HEALTHCHECK's own command, scores a prompt with the embedded LLM, and stops at SIGTERM. `--bind` shows folders
that this machine's pip configuration refers to.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

from clean_root import Builder, Stage, make_context, stages

PROJECT = Path(__file__).resolve().parents[1]
WEIGHTS = ("all-MiniLM-L6-v2", "SmolLM2-135M-Instruct")
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 40.0
CONFINED = """
import os, pathlib
status = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
assert os.getuid() == 10001 and os.getgid() == 10001 and not os.getgroups(), "not the image's user"
assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0, "capabilities are left"
assert int(status["NoNewPrivs"]) == 1, "privileges may grow"
for folder in ("/app", "/opt/venv", "/etc"):
    try:
        pathlib.Path(folder, "x").touch()
    except OSError:
        continue
    raise AssertionError(f"{folder} is writable")
pathlib.Path("/data/x").touch()
pathlib.Path("/data/x").unlink()
pathlib.Path("/tmp/x").touch()
"""


UNPINNED = """
import importlib.metadata, re, sys
plain = lambda name: re.sub("[-_.]+", "-", name).lower()
pinned = {plain(line.partition("==")[0]) for line in sys.argv[1].split()}
pinned |= {"pip", "setuptools", "eigencal-service"}
found = {plain(item.metadata["Name"]) for item in importlib.metadata.distributions()}
sys.exit("not in constraints.txt: " + ", ".join(sorted(found - pinned)) if found - pinned else 0)
"""


class Container:
    """The final stage as a container: its environment, its volume, its user."""

    def __init__(self, builder: Builder, stage: Stage, port: int) -> None:
        self.builder, self.stage = builder, stage
        self.url = f"http://127.0.0.1:{port}"
        self.volume = builder.work / "data"
        kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") and value}
        self.environment = kept | stage.variables | {"EIGENCAL_PORT": str(port)}
        self.environment |= {"EIGENCAL_LLM_BACKEND": "embedded", "EIGENCAL_EMBEDDER": WEIGHTS[0]}

    def make_volume(self) -> None:
        """Make the volume as an engine does: empty, owned like the folder that it covers."""
        shutil.rmtree(self.volume, ignore_errors=True)
        for name in ("", "weights"):
            (self.volume / name).mkdir()
            like = (self.builder.root_of(self.stage) / "data" / name).stat()
            os.chown(self.volume / name, like.st_uid, like.st_gid)

    def start(self, argv: list[str]) -> subprocess.Popen[bytes]:
        """Start a command inside."""
        command = self.builder.inside(self.stage, argv, self.volume)
        return subprocess.Popen(command, env=self.environment)  # noqa: S603

    def healthy(self) -> bool:
        """Run the HEALTHCHECK's command inside; return whether it ended well."""
        command = self.builder.inside(self.stage, self.stage.healthcheck, self.volume)
        return subprocess.run(command, env=self.environment, capture_output=True, check=False).returncode == 0  # noqa: S603

    def get(self, path: str, body: object = None) -> object:
        """Return the JSON of a path of the service."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
            return json.load(answer)


def expect(what: str, holds: bool) -> None:
    """Say what was seen, or end."""
    print(f"{'ok ' if holds else 'NOT'}: {what}", flush=True)
    if not holds:
        sys.exit(1)


def until_healthy(container: Container, service: subprocess.Popen[bytes]) -> float:
    """Ask the health check every second; return the seconds it took, or end."""
    begun, pause = time.monotonic(), threading.Event()
    while not container.healthy():
        if service.poll() is not None or time.monotonic() - begun > START_TIMEOUT_S:
            expect(f"healthy within {START_TIMEOUT_S:.0f} s", False)
        pause.wait(1)
    return time.monotonic() - begun


def stop(service: subprocess.Popen[bytes]) -> int:
    """Send SIGTERM to the first process inside, as an engine does; return the exit status."""
    inside = Path(f"/proc/{service.pid}/task/{service.pid}/children").read_text().split()
    os.kill(int(inside[0]), signal.SIGTERM)
    return service.wait(STOP_TIMEOUT_S)


def prove(container: Container) -> None:
    """Go through the life of a container."""
    entry = container.stage.entrypoint
    container.make_volume()
    expect("confined", container.start(["python", "-c", CONFINED]).wait() == 0)
    pins = (PROJECT / "constraints.txt").read_text()
    expect("every package pinned", container.start(["python", "-c", UNPINNED, pins]).wait() == 0)
    expect("weights fetched", container.start([*entry, "weights", "fetch", *WEIGHTS]).wait() == 0)
    expect("not healthy before it runs", not container.healthy())
    service = container.start(entry)
    try:
        expect(f"healthy after {until_healthy(container, service):.0f} s", True)
        ready = json.dumps(container.get("/readyz"))
        expect(f"ready: {ready}", '"ready"' in ready)
        score = container.get("/score", {"prompt": "What is the capital of France?", "num_samples": 5})
        expect(f"scored: {json.dumps(score)[:200]}", "lambda_max" in json.dumps(score))
        expect("stopped by SIGTERM", stop(service) == 0)
    finally:
        service.kill()


def main() -> None:
    """Build every stage and go through the life of a container of the last."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, required=True, help="Folder to work in (4 GB); kept.")
    parser.add_argument("--bind", action="append", default=[], help="Folder to show inside, for pip.")
    parser.add_argument("--port", type=int, default=18765)
    arguments = parser.parse_args()
    work: Path = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    builder = Builder(make_context(PROJECT, work / "context"), work, arguments.bind)
    builder.make_base()
    found = stages((PROJECT / "Dockerfile").read_text())
    for stage in found:
        builder.build(stage)
    prove(Container(builder, found[-1], arguments.port))


if __name__ == "__main__":
    main()
