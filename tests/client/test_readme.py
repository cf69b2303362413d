"""The README's examples, type-checked strictly; tests/docs runs them."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "clients" / "python"
BLOCKS = re.findall(r"^```python\n(.*?)^```", (PACKAGE / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def test_the_examples_are_typed(tmp_path: Path) -> None:
    for number, block in enumerate(BLOCKS):
        (tmp_path / f"example_{number}.py").write_text(block)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    checked = subprocess.run(
        [*command, *sorted(str(path) for path in tmp_path.glob("*.py"))],
        cwd=tmp_path, env={"MYPYPATH": str(PACKAGE / "src")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr
