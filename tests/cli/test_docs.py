"""The documentation of the command line matches the command."""

import re
from pathlib import Path

from eigencal.cli.command import ExitCode
from tests.cli.conftest import Here

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "command-line.md").read_text()


def rows(heading: str) -> dict[str, str]:
    """Return the first two columns of the table under these heads."""
    table = PAGE.split(heading, 1)[1].split("\n\n", 1)[0]
    cells = [line.strip("| ").split(" | ", 1) for line in table.splitlines() if line.startswith("| ")]
    return {name: meaning for name, meaning in cells if name.strip("-")}


def listed(help_text: str) -> list[str]:
    """Return the commands that a help lists."""
    commands = help_text.split("Commands:\n", 1)[1].split("\n\n", 1)[0]
    return re.findall(r"^  (\S+)", commands, re.MULTILINE)


def test_documentation_lists_exactly_the_commands(here: Here) -> None:
    results = [name for name in listed(here("--help").out) if name != "keys"]
    results += [f"keys {name}" for name in listed(here("keys").out)]
    results += [f"calibrations {name}" for name in listed(here("calibrations", "--help").out)]
    assert sorted(f"`eigencal {name}`" for name in results) == sorted(rows("| command | does |"))


def test_help_describes_every_exit_code(here: Here) -> None:
    output = here("--help").out
    assert [code for code in ExitCode if f"{code.value:>4}  {code.meaning}\n" not in output] == []


def test_common_options_exist_for_each_command_and_none_takes_a_key(here: Here) -> None:
    shared = [name.strip("`") for name in rows("| option | |\n")]
    assert len(shared) == 3
    for name in rows("| command | does |"):
        text = here(*name.strip("`").split()[1:], "--help").out
        assert [option for option in shared if option not in text] == [], name
        assert "--key" not in text
