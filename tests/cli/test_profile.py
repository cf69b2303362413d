"""Profiles: what is remembered, who may read it, and what goes before what."""

import os
import stat
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ADMIN_KEY, SCORE_KEY, Here
from tests.support.command import Command
from tests.support.in_a_terminal import terminal
from tests.support.services import Service

NOBODY = {"EIGENCAL_URL": None, "EIGENCAL_KEY": None}
posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "config" / "eigencal"


def profile(folder: Path, name: str = "default", mode: int = 0o600, **held: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text("".join(f'{key} = "{value}"\n' for key, value in held.items()))
    path.chmod(mode)
    return path


@posix
def test_login_remembers_and_shows_no_key(here: Here, running: Service, folder: Path) -> None:
    url = str(running.http.base_url)
    done = here("login", "--url", url, stdin=f"{SCORE_KEY}\n", **NOBODY)
    assert done.code == 0, done.err
    path = folder / "default.toml"
    assert path.read_text() == f'url = "{url}"\nkey = "{SCORE_KEY}"\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.iterdir()) == [path], "nothing is left beside it"
    scored = here("score", "question 1", "--json", **NOBODY)
    assert scored.code == 0, scored.err
    shown = here("profile", **NOBODY)
    assert url in shown.out
    assert "there is one (from the profile)" in shown.out
    for said in (done, shown, here("profile", "--json", "--verbose", **NOBODY)):
        assert SCORE_KEY not in said.out + said.err
    assert here("logout", **NOBODY).code == 0
    assert not path.exists()


@posix
def test_in_a_terminal_the_key_is_asked_for_without_showing_it(
    bare: Command, running: Service, folder: Path
) -> None:
    with terminal(bare, "login") as asks:
        asks.until("Service [http://127.0.0.1:8000]: ")
        asks.types(f"{running.http.base_url}\n")
        asks.until("Key (empty for none): ")
        asks.types(f"{SCORE_KEY}\n")
        asks.until("and a key")
        assert asks.process.wait(60) == 0
    assert SCORE_KEY not in asks.said
    assert SCORE_KEY in (folder / "default.toml").read_text()


def test_login_with_a_key_that_is_refused_remembers_nothing(
    here: Here, running: Service, folder: Path
) -> None:
    done = here("login", "--url", running.http.base_url, stdin="another\n", **NOBODY)
    assert done.code == 4
    assert not folder.exists()


def test_login_to_a_service_that_is_away_says_so(here: Here, folder: Path) -> None:
    done = here("login", "--url", "http://127.0.0.1:9", "--profile", "away", stdin="a-key\n", **NOBODY)
    assert done.code == 0
    assert "not checked: Nothing answers" in done.err
    assert here("profile", "--list", **NOBODY).out == "away\n"
    assert (folder / "away.toml").exists()


@posix
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o622])
def test_a_key_that_others_can_read_is_refused(here: Here, folder: Path, mode: int) -> None:
    path = profile(folder, mode=mode, url="http://127.0.0.1:9", key="the-key")
    done = here("score", "question 1", **NOBODY)
    assert (done.code, done.err) == (2, f"eigencal: Others can read the key in {path}: chmod 600 {path}\n")
    profile(folder, mode=mode, url="http://127.0.0.1:9")  # without a key there is nothing to hide
    assert here("profile", **NOBODY).code == 0


def asks(here: Here, *options: str, **env: str | None) -> tuple[str, str]:
    """Return where the service and the key are from."""
    done = here("profile", "--json", *options, **env)
    assert done.code == 0, done.err
    return done.json["url_from"], done.json["key_from"]


def test_what_goes_before_what(here: Here, folder: Path) -> None:
    assert asks(here, **NOBODY) == ("the default", "nowhere")
    profile(folder, url="http://a", key="key-a")
    profile(folder, "b", url="http://b", key="key-b")
    assert asks(here, **NOBODY) == ("the profile", "the profile")
    assert asks(here, EIGENCAL_URL="http://c", EIGENCAL_KEY="key-c") == ("EIGENCAL_URL", "EIGENCAL_KEY")
    assert asks(here, "--url", "http://d", EIGENCAL_URL="http://c", EIGENCAL_KEY=None)[0] == "--url"
    assert here("profile", "--json", **NOBODY, EIGENCAL_PROFILE="b").json["url"] == "http://b"
    # A profile that is named on the command line is an option, and goes before the environment.
    named = here("profile", "--json", "--profile", "b", EIGENCAL_URL="http://c", EIGENCAL_KEY="key-c").json
    assert (named["url"], named["key_from"]) == ("http://b", "the profile")


def test_the_key_of_one_service_is_not_shown_to_another(here: Here, folder: Path) -> None:
    profile(folder, url="http://a", key="key-a")
    assert asks(here, EIGENCAL_URL="http://b", EIGENCAL_KEY=None) == ("EIGENCAL_URL", "nowhere")
    assert asks(here, "--url", "http://b", **NOBODY) == ("--url", "nowhere")
    assert asks(here, "--url", "http://a/", **NOBODY) == ("--url", "the profile")


def test_the_key_of_the_environment_is_not_shown_to_a_profile_that_is_named(here: Here, folder: Path) -> None:
    key = {"EIGENCAL_KEY": "key-of-a"}
    profile(folder, "b", url="http://b")
    assert asks(here, "--profile", "b", **key) == ("the profile", "nowhere")
    assert asks(here, "--profile", "b", "--url", "http://c", **key) == ("--url", "nowhere")
    profile(folder, "without", key="")
    assert asks(here, "--profile", "without", **key) == ("EIGENCAL_URL", "EIGENCAL_KEY")
    # Nobody named this one: it is of the same surroundings as the variable.
    profile(folder, url="http://a")
    assert asks(here, EIGENCAL_URL=None, **key) == ("the profile", "EIGENCAL_KEY")
    assert asks(here, EIGENCAL_URL=None, EIGENCAL_PROFILE="b", **key) == ("the profile", "EIGENCAL_KEY")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("url = http://a\n", "is no TOML"),
        ('url = "http://a"\nkye = "x"\n', "holds kye: only url and key are known"),
        ("key = 7\n", "key must be a text"),
        ("", None),
    ],
)
def test_what_is_no_profile_is_told(here: Here, folder: Path, text: str, said: str | None) -> None:
    profile(folder).write_text(text)
    done = here("profile", **NOBODY)
    assert done.code == (0 if said is None else 2)
    assert said is None or said in done.err
    if said:
        assert here("logout", **NOBODY).code == 2, "what is no profile is not deleted"


@pytest.mark.parametrize("name", ["none", "../none", "none.toml", ".hidden"])
def test_a_profile_that_is_named_must_be_there(here: Here, name: str) -> None:
    assert here("profile", **NOBODY, EIGENCAL_PROFILE=name).code == 2
    assert here("score", "question 1", "--profile", name).code == 2


def test_a_path_names_a_profile_anywhere(here: Here, running: Service, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere" / "ours.toml"
    url = str(running.http.base_url)
    done = here("login", "--url", url, "--profile", path, stdin=f"{ADMIN_KEY}\n", **NOBODY)
    assert done.code == 0, done.err
    assert here("jobs", "--profile", f".{os.sep}elsewhere{os.sep}ours.toml", **NOBODY).code == 0


def test_a_service_without_a_key_is_remembered_without_one(here: Here, folder: Path) -> None:
    done = here("login", "--url", "http://127.0.0.1:9", stdin="\n", **NOBODY)
    assert done.out.endswith("no key\n")
    assert "key" not in (folder / "default.toml").read_text()
