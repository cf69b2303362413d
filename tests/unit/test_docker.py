"""Dockerfile and docker-compose.yml, checked without an engine. `make check-docker` checks the rest."""

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.tour import LLM_DEFAULTS
from service.llm.weights import SMOLLM2
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


def started(*profiles: str) -> set[str]:
    """Return the services started by Compose: those of an active profile, and those without a profile."""
    return {
        name
        for name, service in SERVICES.items()
        if not service.get("profiles") or set(service["profiles"]) & set(profiles)
    }


class TestDockerfile:
    def test_base_image_is_pinned(self) -> None:
        assert re.search(r"^ARG PYTHON_IMAGE=python:3\.\d+\.\d+-slim-\w+$", DOCKERFILE, re.MULTILINE)
        assert {line.split()[0] for line in steps("FROM")} == {"${PYTHON_IMAGE}"}

    def test_every_install_is_pinned(self) -> None:
        installs = re.findall(r"pip install ([^&\n]*)", DOCKERFILE)
        assert installs
        for install in installs:
            assert re.search(r"==|-c constraints.txt|--no-deps", install), install

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
    def test_all_images_are_pinned(self) -> None:
        for name, service in SERVICES.items():
            tag = interpolated(service["image"]).rpartition(":")[2]
            built_here = tag == "local"
            assert built_here or re.match(r"v?\d+\.\d+", tag), f"{name}: {service['image']}"

    def test_composition_offers_exactly_the_settings(self) -> None:
        named = {name for name in environment("eigencal") if name.startswith("EIGENCAL_")}
        assert named == SETTINGS, "a setting is missing in docker-compose.yml, or is there no more"

    def test_given_values_are_valid(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in environment("eigencal").items():
            if value is not None:
                monkeypatch.setenv(name, interpolated(value))
        settings = Settings()
        assert settings.llm_url == "http://llm:8000/v1"
        assert settings.llm_priority
        assert settings.database_url == ""

    @pytest.mark.parametrize(
        ("profiles", "expected"),
        [
            ((), set()),
            (("gpu",), {"weights", "eigencal", "edge", "vllm"}),
            (("cpu",), {"weights", "eigencal", "edge", "vllm-cpu"}),
            (("external",), {"weights", "eigencal", "edge"}),
            (("gpu", "postgres"), {"weights", "eigencal", "edge", "vllm", "postgres"}),
            (("external", "router"), {"weights", "eigencal", "edge", "router"}),
            (("external", "observe"), {"weights", "eigencal", "edge", "prometheus", "grafana"}),
        ],
    )
    def test_profiles_start(self, profiles: tuple[str, ...], expected: set[str]) -> None:
        assert started(*profiles) == expected

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


class TestDemo:
    """docker/demo.yml: the LLM server of `make run` beside the service."""

    OVERRIDE: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "demo.yml").read_text())["services"]

    def test_llm_server_is_confined_and_of_the_same_image(self) -> None:
        llm = self.OVERRIDE["llm"]
        assert llm["image"] == SERVICES["eigencal"]["image"]
        assert (llm["read_only"], llm["cap_drop"]) == (True, ["ALL"])
        assert llm["security_opt"] == ["no-new-privileges:true"]
        assert "ports" not in llm

    def test_service_has_the_settings_of_make_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given = self.OVERRIDE["eigencal"]["environment"]
        assert given.keys() - LLM_DEFAULTS.keys() == {"EIGENCAL_LLM_PRIORITY"}
        assert {name: interpolated(given[name]) for name in LLM_DEFAULTS} == LLM_DEFAULTS
        for name, value in (environment("eigencal") | given).items():
            if value is not None:
                monkeypatch.setenv(name, interpolated(value))
        settings = Settings()
        assert (settings.llm_url, settings.llm_priority) == ("http://llm:8000/v1", False)
        assert self.OVERRIDE["llm"]["command"].endswith("--port 8000")

    def test_weights_of_both_models_are_fetched(self) -> None:
        command = SERVICES["weights"]["command"]
        assert self.OVERRIDE["weights"]["command"] == f"{command} {SMOLLM2}"


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
    def test_all_set_variables_are_read(self) -> None:
        offered = set(re.findall(r"^#?([A-Z_]+)=", EXAMPLE, re.MULTILINE))
        read = {name for name, _ in VARIABLE.findall(COMPOSE_TEXT)} | {"COMPOSE_PROFILES", "COMPOSE_FILE"}
        read |= {name for service in SERVICES.values() for name in service.get("environment", {})}
        assert offered <= read

    def test_composition_offers_variables_that_are_not_settings(self) -> None:
        offered = set(re.findall(r"^#?([A-Z_]+)=", EXAMPLE, re.MULTILINE))
        variables = {name for name, _ in VARIABLE.findall(COMPOSE_TEXT)}
        assert {name for name in variables if not name.startswith("EIGENCAL_")} <= offered

    def test_composition_supports_an_external_llm_server(self) -> None:
        offered = set(re.findall(r"^#?([A-Z_]+)=", EXAMPLE, re.MULTILINE))
        defaults = {name: value for name, value in environment("eigencal").items() if value is not None}
        ours = {name for name in defaults if name.startswith("EIGENCAL_LLM_")}
        assert ours == {"EIGENCAL_LLM_URL", "EIGENCAL_LLM_PRIORITY"}
        assert ours | {"EIGENCAL_LLM_API_KEY", "EIGENCAL_LLM_MODEL"} <= offered

    def test_composition_uses_a_gpu_by_default_and_contains_no_secret(self) -> None:
        assert "\nCOMPOSE_PROFILES=gpu\n" in EXAMPLE
        secrets = [line for line in EXAMPLE.splitlines() if re.search(r"(KEY|TOKEN|PASSWORD)=", line)]
        assert secrets
        assert [line for line in secrets if not line.endswith("=")] == []

    def test_defaults_match_the_composition(self) -> None:
        shown = dict(re.findall(r"^#?([A-Z_]+)=(\S+)$", EXAMPLE, re.MULTILINE))
        for name in (
            "VLLM_TAG",
            "VLLM_CPU_TAG",
            "WEIGHTS",
            "PUBLISH_HOST",
            "PUBLISH_PORT",
            "EIGENCAL_EMBEDDER",
        ):
            assert f"${{{name}:-{shown[name]}}}" in COMPOSE_TEXT, name
