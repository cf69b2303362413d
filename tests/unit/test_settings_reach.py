"""Every setting has an effect: changed in the environment, it changes the parts that `serve` builds.

A new setting needs a line in OTHER, and in SERVER_ONLY if only an embeddings server needs it.
"""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.processes import free_port
from service.admin.services import Services
from service.app import OTEL_VARIABLES
from service.calibration.files import UploadLimits
from service.cli import cli
from service.embedding import http as http_embedder
from service.embedding import local
from service.http.door import Door
from service.http.keys import Keys
from service.jobs.calibrator import Calibrator, Checking, Drawer
from service.jobs.engine import DbosEngine
from service.jobs.knowing import GetToKnow
from service.jobs.runner import DurableJobs, JobSteps
from service.jobs.store import SqlJobs
from service.llm.client import LLM
from service.llm.prompt import Template
from service.llm.queue import CallQueue
from service.proxy.chat import Chat
from service.scoring.claims import ClaimScorer
from service.scoring.score import Serving
from service.scoring.score_cache import ScoreCache, ScoreStore
from service.scoring.scorer import Scorer
from service.settings import PREFIX, Settings
from service.store.database import Database

# A value other than the default, in the format of the environment.
OTHER = {
    "host": "127.0.0.2",
    "port": str(free_port()),
    "write_timeout_s": "7",
    "data_dir": "elsewhere",
    "database_url": "sqlite:///other.db",
    "admin_key": "an-admin-key",
    "score_key": "a-score-key",
    "allow_open": "true",
    "log_level": "error",
    "llm_url": "http://127.0.0.1:9001/v1",
    "llm_model": "a-model",
    "llm_api": "completions",
    "llm_api_key": "an-llm-key",
    "llm_timeout_s": "77",
    "llm_slots": "31",
    "system_prompt": "Be brief.",
    "prompt_template": "Ask: {prompt}",
    "num_samples": "9",
    "sampling_temperature": "0.9",
    "top_p": "0.8",
    "top_k": "7",
    "max_tokens": "33",
    "stop": '["."]',
    "target_error": "0.2",
    "chat_mode": "async",
    "chat_deadline_s": "3",
    "chat_num_samples": "3",
    "claims_from_characters": "70",
    "get_to_know": "false",
    "self_check": "false",
    "abstain": "true",
    "abstain_text": "No idea.",
    "score_ttl_s": "60",
    "embedder": "all-MiniLM-L6-v2",
    "kernel": "paper",
    "compare": "llm",
    "embedder_url": "http://127.0.0.1:9002/v1",
    "embedder_api_key": "an-embedder-key",
}
# Port 0 is any free one: the default may be taken, as by `make run`.
BASES = {
    "embedder in process": {"port": "0"},
    "embedder on a server": {"port": "0", "embedder_url": "http://127.0.0.1:8002/v1"},
}
SERVER_ONLY = {"embedder_api_key"}

BUILT = [
    CallQueue,
    LLM,
    Template,
    Chat,
    http_embedder.HttpEmbedder,
    local.SentenceTransformerEmbedder,
    Database,
    Calibrator,
    Checking,
    SqlJobs,
    ScoreStore,
    ScoreCache,
    Scorer,
    ClaimScorer,
    Drawer,
    GetToKnow,
    DurableJobs,
    DbosEngine,
    JobSteps,
    Serving,
    Keys,
    Services,
    UploadLimits,
    Door,
]
Picture = dict[str, Any]


def plain(value: Any) -> Any:
    """Return a value in a form that is comparable between runs; for objects with state, the class name."""
    if value is None or isinstance(value, str | int | float | Path):
        return value
    if isinstance(value, tuple | list | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return type(value).__name__


def recorded(init: Callable[..., None], name: str, picture: Picture) -> Callable[..., None]:
    def recording(self: object, *args: Any, **kwargs: Any) -> None:
        arguments = inspect.signature(init).bind(self, *args, **kwargs).arguments
        picture.setdefault(name, []).append({k: plain(v) for k, v in arguments.items() if k != "self"})
        init(self, *args, **kwargs)

    return recording


def served_with(monkeypatch: pytest.MonkeyPatch, folder: Path, set_: dict[str, str]) -> Picture:
    """Return the parts that `serve` builds in this environment, before it listens."""
    picture: Picture = {}

    def run(app: Any, **options: Any) -> None:
        picture["server"] = options
        picture["middleware"] = [(item.cls.__name__, plain(item.kwargs)) for item in app.user_middleware]

    with monkeypatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("service.server.run", run)
        for part in BUILT:
            patch.setattr(part, "__init__", recorded(part.__init__, part.__name__, picture))
        for name, value in set_.items():
            patch.setenv(f"{PREFIX}{name.upper()}", value)
        for name in OTEL_VARIABLES:
            patch.delenv(name, raising=False)
        result = CliRunner().invoke(cli, ["serve"])
    assert result.exit_code == 0, result.output
    assert picture["server"]
    return picture


def test_every_setting_is_covered() -> None:
    assert OTHER.keys() == Settings.model_fields.keys()


@pytest.mark.parametrize("base", BASES)
def test_every_setting_changes_what_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, base: str
) -> None:
    for name in Settings.model_fields:  # without settings of this machine
        monkeypatch.delenv(f"{PREFIX}{name.upper()}", raising=False)
    unchanged = served_with(monkeypatch, tmp_path, BASES[base])
    assert served_with(monkeypatch, tmp_path, BASES[base]) == unchanged
    idle = SERVER_ONLY if base == "embedder in process" else set()
    for name, value in OTHER.items():
        changed = served_with(monkeypatch, tmp_path, {**BASES[base], name: value}) != unchanged
        assert changed == (name not in idle), f"{name} {'changes' if changed else 'does not reach'} anything"
