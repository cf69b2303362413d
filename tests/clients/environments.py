"""The client packages' own environments, and scripts run in them. `make test-clients` makes them."""

import json
import os
import secrets
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes import ROOT

HERE = Path(__file__).parent
BIN, LLAMA_INDEX_BIN = (ROOT / name / "bin" for name in (".venv-clients", ".venv-llama-index"))
NODE_PACKAGES = HERE / "node" / "node_modules"
REQUIREMENTS = [HERE / name for name in ("requirements.txt", "llama-index.txt")]
PATIENCE_S = 300  # nothing but a guard: a machine may be busy
SCRIPTS = {
    "openai_sync": "scripts/openai_python.py",
    "openai_async": "scripts/openai_async.py",
    "openai_responses": "scripts/openai_responses.py",
    "openai_node": "node/openai_node.mjs",
    "openai_node_responses": "node/openai_node_responses.mjs",
    "agents_sdk": "scripts/agents_sdk.py",
    "ai_sdk": "node/ai_sdk.mjs",
    "ai_sdk_openai": "node/ai_sdk_openai.mjs",
    "langchain": "scripts/langchain_chat.py",
    "langchain_responses": "scripts/langchain_responses.py",
    "llama_index": "scripts/llama_index_chat.py",
    "litellm_sdk": "scripts/litellm_sdk.py",
    "litellm_proxy": "scripts/openai_python.py",
}
# LiteLLM fetches a table of prices at its start, and tells its makers that it did.
LITELLM = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
# The keys of our callers, of the LLM server (another one), and of LiteLLM.
SCORE_KEY, LLM_KEY, LITELLM_KEY = (f"sk-{secrets.token_hex(16)}" for _ in range(3))
FROM_HERE = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH")


def command_for(script: Path) -> list[str]:
    """Return the command that runs a script, by its suffix."""
    folder = LLAMA_INDEX_BIN if script.stem.startswith("llama_index") else BIN
    python = script.suffix == ".py"
    if not (folder if python else NODE_PACKAGES).exists():
        pytest.fail("the clients' environment is missing: make test-clients")
    return [str(folder / "python") if python else "node", str(script)]


def outcome(
    script: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a client's script. It inherits only the variables that programs need to run."""
    kept = {name: os.environ[name] for name in FROM_HERE if name in os.environ}
    return subprocess.run(
        [*command_for(script), *arguments],
        env={**kept, **LITELLM, "PYTHONIOENCODING": "utf-8", **(env or {})},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE_S,
        check=False,
    )


def printed(client: str, base_url: str, key: str, model: str, *only: str) -> dict[str, Any]:
    """Return the JSON that a client's script prints in its last line. `only`: kinds of requests."""
    done = outcome(HERE / SCRIPTS[client], base_url, key, model, *only)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def versions() -> dict[str, str]:
    """Return the versions of the client packages as they are pinned, by name; those of npm as `npm:name`.

    A package that LlamaIndex needs in another version has that of the other clients.
    """
    pins = [line for path in reversed(REQUIREMENTS) for line in path.read_text().splitlines() if "==" in line]
    pairs = (line.split(" ;")[0].split("==") for line in pins)
    python = {name.split("[")[0]: version for name, version in pairs}
    node = json.loads((HERE / "node" / "package.json").read_text())["dependencies"]
    return python | {f"npm:{name}": version for name, version in node.items()}
