"""SHA-256 of files, remembered beside a note of their size and modification time so that a start is fast."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hashes(folder: Path, names: Iterable[str], memo: Path | None = None) -> dict[str, str]:
    """Return the SHA-256 of each named file in the folder.

    A file whose size and modification time are those noted in `memo` is not read again. `memo` is written
    when anything was read; where it cannot be written, the next call reads again.
    Raises OSError when a file is missing.
    """
    noted = _read(memo)
    now = {name: _entry(folder / name, noted.get(name)) for name in names}
    if memo is not None and now != noted:
        with contextlib.suppress(OSError):
            _write(memo, now)
    return {name: str(entry[2]) for name, entry in now.items()}


def _entry(path: Path, noted: list[int | str] | None) -> list[int | str]:
    stat = path.stat()
    if noted and noted[:2] == [stat.st_size, stat.st_mtime_ns]:
        return noted
    return [stat.st_size, stat.st_mtime_ns, sha256_of(path)]


def _read(memo: Path | None) -> dict[str, list[int | str]]:
    if memo is None:
        return {}
    try:
        noted = json.loads(memo.read_text())
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def _write(memo: Path, entries: dict[str, list[int | str]]) -> None:
    memo.parent.mkdir(parents=True, exist_ok=True)
    draft = memo.with_name(f"{memo.name}.{os.getpid()}")
    draft.write_text(json.dumps(entries))
    draft.replace(memo)


def digest(sha256: dict[str, str]) -> str:
    """Return one hash (16 hex digits) of a set of files by name and content; the order does not matter."""
    lines = "".join(f"{name} {value}\n" for name, value in sorted(sha256.items()))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]
