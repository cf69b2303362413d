"""Check that Grafana's own schema knows each key of the dashboard.

Needs the package `grafana-foundation-sdk`. Its readers drop unknown keys.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

FILE = Path(__file__).parents[1] / "deploy" / "observe" / "grafana" / "dashboards" / "eigencal.json"


def lost(original: Any, parsed: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each value of `original` that `parsed` lacks or changes."""
    if isinstance(original, dict) and isinstance(parsed, dict):
        for key, value in original.items():
            yield from lost(value, parsed.get(key), f"{path}/{key}")
    elif isinstance(original, list) and isinstance(parsed, list) and len(original) == len(parsed):
        for i, (original_item, parsed_item) in enumerate(zip(original, parsed, strict=True)):
            yield from lost(original_item, parsed_item, f"{path}/{i}")
    elif original != parsed:
        yield path


def unknown(dashboard: dict[str, Any]) -> list[str]:
    """Return the paths of the dashboard's values that Grafana does not know."""
    parsed = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
    return list(lost(dashboard, parsed))


def main() -> None:
    """Check the dashboard, and that the checker refuses an unknown key."""
    register_default_plugins()
    dashboard = json.loads(FILE.read_text("utf-8"))
    if paths := unknown(dashboard):
        sys.exit(f"{FILE.name}: not known to Grafana: {', '.join(paths)}")
    if not unknown(json.loads(FILE.read_text("utf-8").replace('"expr"', '"query"'))):
        sys.exit("the checker lets an unknown key through")
    print(f"{FILE.name}: {len(dashboard['panels'])} panels and rows")


if __name__ == "__main__":
    main()
