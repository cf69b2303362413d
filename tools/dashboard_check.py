"""Read the dashboard by Grafana's own schema: each key must be one that it knows.

Needs the package `grafana-foundation-sdk`, whose readers leave out what they do not know.
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


def lost(given: Any, read: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each value that did not come through."""
    if isinstance(given, dict) and isinstance(read, dict):
        for key, value in given.items():
            yield from lost(value, read.get(key), f"{path}/{key}")
    elif isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        for i, (one, other) in enumerate(zip(given, read, strict=True)):
            yield from lost(one, other, f"{path}/{i}")
    elif given != read:
        yield path


def unknown(dashboard: dict[str, Any]) -> list[str]:
    """Return the paths of what Grafana does not know in a dashboard."""
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
    return list(lost(dashboard, read))


def main() -> None:
    """Check the dashboard, and that the checker can refuse."""
    register_default_plugins()
    dashboard = json.loads(FILE.read_text("utf-8"))
    if found := unknown(dashboard):
        sys.exit(f"{FILE.name}: not known to Grafana: {', '.join(found)}")
    if not unknown(json.loads(FILE.read_text("utf-8").replace('"expr"', '"query"'))):
        sys.exit("the checker lets an unknown key through")
    print(f"{FILE.name}: {len(dashboard['panels'])} panels and rows")


if __name__ == "__main__":
    main()
