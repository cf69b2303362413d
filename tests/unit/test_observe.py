"""Alerts and dashboard query existing metrics. Prometheus itself checks the rest (tests/e2e)."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from tests.support.drop_in import drop_in
from tests.support.openai_server import OpenAIServer, answers

ROOT = Path(__file__).parents[2]
OBSERVE = ROOT / "deploy" / "observe"
(GROUP,) = yaml.safe_load((OBSERVE / "alerts.yml").read_text())["groups"]
RULES: list[dict[str, Any]] = GROUP["rules"]
DASHBOARD: dict[str, Any] = json.loads((OBSERVE / "grafana" / "dashboards" / "eigencal.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]


def named(query: str) -> set[str]:
    """Return the metrics in a query, without the suffixes of a histogram's series."""
    matches = re.findall(r"\b(?:eigencal|process)_\w+", re.sub(r'"[^"]*"', "", query))
    return {re.sub(r"_(bucket|sum|count)$", "", match_) for match_ in matches}


async def test_every_queried_metric_exists() -> None:
    async with OpenAIServer(default=answers("Paris")) as server, drop_in(server) as made:
        text = (await made.http.get("/metrics")).text
    matches = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    queried = set().union(*map(named, [*QUERIES, *(rule["expr"] for rule in RULES)]))
    assert len(queried) > 20
    assert queried - matches == set()
