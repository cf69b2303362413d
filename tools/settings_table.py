"""Generate the documentation's table of settings from the settings class.

python -m tools.settings_table    prints the table of docs/operating.md; a test compares them
"""

import sys
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from service.settings import Settings


def table() -> str:
    """Return every setting as a row of a Markdown table: variable, default, meaning."""
    rows = [
        f"| `EIGENCAL_{name.upper()}` | {_default(field)} | {field.description} |"
        for name, field in Settings.model_fields.items()
    ]
    return "\n".join(["| variable | default | meaning |", "| --- | --- | --- |", *rows]) + "\n"


def _default(field: FieldInfo) -> str:
    value: Any = field.default
    if value is PydanticUndefined:
        return "(see right)"
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, Path):
        value = value.as_posix()
    return f"`{value}`" if value not in ("", None) else "(empty)"


if __name__ == "__main__":
    sys.stdout.write(table())
