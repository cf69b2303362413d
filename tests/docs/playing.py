"""Runs a page: its blocks in order, in one shell, with the service of `make run`."""

import csv
import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import ROOT
from demo.data import RECORDED
from tests.docs.blocks import SHELL, Block

PATIENCE_S = 600  # a guard only: the machine may be busy
PAGES_ADDRESS = "127.0.0.1:8000"
CLIENT = ROOT / "clients" / "python"
OTHERS_PACKAGES = re.compile(r"^\s*(?:import|from) (openai|litellm|llama_index|langchain\w*)\b", re.MULTILINE)
MARK = "=== block {} ==="
LATEST = """#!{python}
import json, sys, time, urllib.request

def ask(path):
    return json.load(urllib.request.urlopen({url!r} + path, timeout=60))

kind = sys.argv[1:] and sys.argv[1]
for _ in range(3000):  # ten minutes: nothing but a guard, on a machine that may be busy
    job = ask("/jobs")[0]
    if job["state"] not in ("queued", "running"):
        break
    time.sleep(0.2)
assert job["state"] == "succeeded", job
print(job["calibration_id"] if kind == "calibration" else job["id"])
"""
# Prerequisites of the pages: the tree's folders, and files of labelled questions.
FROM_TREE = ("service", "demo", "lab", "clients", "docs", ".venv")


@dataclass(frozen=True)
class Played:
    """Results of a page: the output by number of block, and the exit of the shell."""

    printed: dict[int, str]
    returncode: int
    errors: str

    @property
    def last(self) -> int:
        return max(self.printed)


def needs_others_packages(block: Block) -> bool:
    """Return True if a block imports a third-party package installed by `make test-clients`."""
    return block.language == "python" and bool(OTHERS_PACKAGES.search(block.code))


def prepared(folder: Path, url: str) -> Path:
    """Fill a folder with the things that a reader of a page has: the tree, own questions, and commands.

    `latest job` and `latest calibration`, for comments `before`, wait for the newest job and print an id.
    """
    for name in FROM_TREE:
        (folder / name).symlink_to(ROOT / name)
    rows = RECORDED.read_text(encoding="utf-8").splitlines(keepends=True)
    for name, part in {"questions": rows[:64], "dev": rows[:50], "test": rows[50:100]}.items():
        (folder / f"{name}.jsonl").write_text("".join(part), encoding="utf-8")
    bare = [{"prompt": row["prompt"]} for row in map(json.loads, rows[:3])]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in bare))
    _answers_of_another(folder, [json.loads(row) for row in rows[:40]])
    # curl ignores refusals, but a refused command means that the page is wrong.
    (folder / ".curlrc").write_text("fail-with-body\nmax-time = 300\n")
    _commands(folder / ".commands")
    _command(folder / ".commands" / "latest", LATEST.format(python=sys.executable, url=url))
    return folder


def _answers_of_another(folder: Path, rows: list[dict[str, object]]) -> None:
    with (folder / "answers.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["prompt", "reference", "samples"])
        for row in rows:
            writer.writerow([row["prompt"], json.dumps(row["reference"]), json.dumps(row["samples"])])


def _commands(folder: Path) -> None:
    """Write the commands that the client's distribution declares: it is not installed here."""
    folder.mkdir()
    declared = CLIENT / "pyproject.toml"
    if not declared.exists():
        return
    scripts = tomllib.loads(declared.read_text(encoding="utf-8"))["project"].get("scripts", {})
    for name, target in scripts.items():
        module, _, function = target.partition(":")
        start = f"import sys; from {module} import {function}; sys.exit({function}())"
        _command(folder / name, f"#!/bin/sh\nexec {sys.executable} -c '{start}' \"$@\"\n")


def _command(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def environment(folder: Path, url: str, python: Path) -> dict[str, str]:
    """Return the environment of a page: the service's address, without other settings of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EIGENCAL_")}
    path = os.pathsep.join([str(folder / ".commands"), str(python.parent), kept["PATH"]])
    ours = {
        "PATH": path,
        "PYTHONPATH": os.pathsep.join([str(CLIENT / "src"), str(ROOT)]),
        "CURL_HOME": str(folder),
        "EIGENCAL_URL": url,
        "EIGENCAL_EMBEDDER": "all-MiniLM-L6-v2",  # fetched by `make run`
        "EIGENCAL_DATA_DIR": str(ROOT / "data"),
        "COLUMNS": "100",
    }
    return kept | ours


def play(blocks: list[Block], url: str, folder: Path, python: Path = Path(sys.executable)) -> Played:
    """Run blocks in order in one shell, which stops at the first failure."""
    script = "\n".join(["set -eo pipefail", *_steps(blocks, url, folder)])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment(folder, url, python),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE_S,
        check=False,
    )
    return Played(_by_block(done.stdout), done.returncode, done.stderr)


def _steps(blocks: list[Block], url: str, folder: Path) -> list[str]:
    address = url.partition("://")[2]
    steps, program = [], ""
    for number, block in enumerate(blocks):
        code = block.code.replace(PAGES_ADDRESS, address)
        steps += [
            block.markers.get("before", "").replace(PAGES_ADDRESS, address),
            f"echo '{MARK.format(number)}'",
        ]
        if block.language in SHELL:
            steps.append(code)
        else:
            program = program + code if "goes on" in block.markers else code
            path = folder / f"block_{number}.py"
            path.write_text(program, encoding="utf-8")
            steps.append(f"python {path.name}")
        steps.append("echo")
    return steps


def _by_block(printed: str) -> dict[int, str]:
    parts = re.split(rf"^{MARK.format('([0-9]+)')}$", printed, flags=re.MULTILINE)[1:]
    return {int(number): text.strip() for number, text in zip(parts[::2], parts[1::2], strict=True)}
