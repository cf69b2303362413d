"""Alert rules and dashboard queries in promtool, and a real Prometheus that scrapes the service."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import yaml

from benchmarks.processes import ROOT, free_port
from service.app import create_app
from service.settings import Settings
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.live import served
from tests.support.sqlite_store import SqliteStore

pytestmark = pytest.mark.prometheus
OBSERVE = ROOT / "deploy" / "observe"
KEY = "the-score-key"


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)


def passed(ran: subprocess.CompletedProcess[str]) -> None:
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return the configuration in a folder, with its key."""
    folder = tmp_path / "observe"
    shutil.copytree(OBSERVE, folder, ignore=shutil.ignore_patterns("score.key"))
    (folder / "score.key").write_text(KEY)
    return folder / "prometheus.yml"


def test_configuration_and_rules_are_valid(config: Path) -> None:
    passed(promtool("check", "config", config))


def test_all_dashboard_queries_are_valid(tmp_path: Path) -> None:
    panels = json.loads((OBSERVE / "grafana" / "dashboards" / "eigencal.json").read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert queries
    rules = [
        {"record": f"query:{i}", "expr": query.replace("$__rate_interval", "5m")}
        for i, query in enumerate(queries)
    ]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    passed(promtool("check", "rules", file))
    file.write_text(file.read_text().replace("sum", "sun", 1))
    assert promtool("check", "rules", file).returncode != 0


@asynccontextmanager
async def prometheus(config: Path, service: int) -> AsyncIterator[httpx.AsyncClient]:
    """Run Prometheus with the configuration, except for the service's address and the scrape interval."""
    config_ = yaml.safe_load(config.read_text())
    config_["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s", "scrape_timeout": "1s"}
    (job,) = config_["scrape_configs"]
    del job["dns_sd_configs"], job["scrape_timeout"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{service}"]}]
    config.write_text(yaml.safe_dump(config_))
    address = f"127.0.0.1:{free_port()}"
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={config.parent / 'data'}"]
    process = await asyncio.create_subprocess_exec(
        *command, f"--web.listen-address={address}", stderr=subprocess.DEVNULL
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://{address}/api/v1") as http:
            yield http
    finally:
        process.terminate()
        await process.wait()


async def answered(http: httpx.AsyncClient, query: str) -> list[dict[str, Any]]:
    """Return the result of a query, once it has one."""
    async with asyncio.timeout(60):
        while True:
            with suppress(httpx.TransportError):
                reply = await http.get("/query", params={"query": query})
                if reply.status_code == 200 and (result := reply.json()["data"]["result"]):
                    return list(result)
            await asyncio.sleep(0.2)


async def test_prometheus_scrapes_the_service_with_its_key(config: Path, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, score_key=KEY)
    app = create_app(settings, llm=FakeLLM(), embedder=FakeEmbedder(8), store=SqliteStore())
    async with served(app) as port, prometheus(config, port) as http:
        [up] = await answered(http, 'up{job="eigencal"} == 1')
        assert up["metric"]["instance"] == f"127.0.0.1:{port}"
        parts = await answered(http, "eigencal_part_up == 1")
        assert {part["metric"]["part"] for part in parts} == {"store", "embedder", "llm"}
        [group] = (await http.get("/rules")).json()["data"]["groups"]
        assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}
