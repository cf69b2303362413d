"""Dockerfile and docker-compose.yml, checked without an engine. `make check-docker` checks the rest."""

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import Settings

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
COMPOSE_TEXT = (ROOT / "docker-compose.yml").read_text()
EXAMPLE = (ROOT / ".env.example").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SETTINGS = {f"EIGENCAL_{name.upper()}" for name in Settings.model_fields}
VARIABLE = re.compile(r"\$\{(\w+):?-([^${}]*)\}")


def steps(keyword: str) -> list[str]:
    return re.findall(rf"^{keyword} +(.*)$", DOCKERFILE, re.MULTILINE)


def interpolated(text: str, **variables: str) -> str:
    return VARIABLE.sub(lambda result: variables.get(result[1]) or result[2], text)


def environment(service: str) -> dict[str, str | None]:
    return SERVICES[service]["environment"]


class TestDockerfile:
    def test_image_contains_exactly_the_service(self) -> None:
        allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")}
        copied = {
            name.split("/")[0] for step in steps("COPY") if "--from" not in step for name in step.split()[:-1]
        }
        assert copied == allowed

    def test_image_settings_are_valid(self, monkeypatch: pytest.MonkeyPatch) -> None:
        matches = dict(re.findall(r"(EIGENCAL_\w+)=(\S+)", DOCKERFILE))
        assert matches.keys() <= SETTINGS
        for name, value in matches.items():
            monkeypatch.setenv(name, value)
        settings = Settings()
        assert (settings.host, settings.data_dir) == ("0.0.0.0", Path("/data"))


class TestCompose:
    def test_composition_offers_exactly_the_settings(self) -> None:
        named = {name for name in environment("eigencal") if name.startswith("EIGENCAL_")}
        assert named == SETTINGS, "a setting is missing in docker-compose.yml, or is there no more"

    def test_the_service_is_confined(self) -> None:
        for name in ("weights", "eigencal", "prometheus", "grafana"):
            service = SERVICES[name]
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]
            assert "privileged" not in service

    def test_service_is_published_on_loopback_by_default(self) -> None:
        (port,) = SERVICES["edge"]["ports"]
        assert interpolated(port) == "127.0.0.1:8000:8000"
        published = {port for service in SERVICES.values() for port in service.get("ports", [])}
        assert {interpolated(item) for item in published - {port}} == {
            "127.0.0.1:9090:9090",
            "127.0.0.1:3000:3000",
        }


PARSE = """
import json, sys
import vllm.entrypoints.cli.serve as serve
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
(command,) = serve.cmd_init()
command.subparser_init(parser.add_subparsers())
names = ("model_tag", "max_model_len", "enable_prefix_caching", "scheduling_policy", "stream_interval")
for words in json.loads(sys.argv[1]):
    args = parser.parse_args(["serve", *words])
    print(json.dumps([getattr(args, name) for name in names]))
"""


@pytest.mark.vllm
def test_vllm_accepts_its_command_lines() -> None:
    lines = [shlex.split(interpolated(SERVICES[server]["command"])) for server in ("vllm", "vllm-cpu")]
    command = [str(ROOT / ".venv-vllm/bin/python"), "-c", PARSE, json.dumps(lines)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, cwd=ROOT)
    for words, line in zip(lines, result.stdout.splitlines()[-2:], strict=True):
        length = int(words[words.index("--max-model-len") + 1])
        assert json.loads(line) == [words[0], length, True, "priority", 8]


class TestExample:
    def test_composition_uses_a_gpu_by_default_and_contains_no_secret(self) -> None:
        assert "\nCOMPOSE_PROFILES=gpu\n" in EXAMPLE
        secrets = [line for line in EXAMPLE.splitlines() if re.search(r"(KEY|TOKEN|PASSWORD)=", line)]
        assert secrets
        assert [line for line in secrets if not line.endswith("=")] == []
