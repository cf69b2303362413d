"""The command that starts a real vLLM server on this machine's CPU, for tests and benchmarks."""

from pathlib import Path

VLLM_PYTHON = Path(__file__).parents[2] / ".venv-vllm" / "bin" / "python"
ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}


def serve_command(model: str | Path, port: int, *, name: str = "m", host: str = "127.0.0.1") -> list[str]:
    """Return the command, to be run with `ENVIRONMENT`. docs/operating.md explains the flags."""
    return [
        *(str(VLLM_PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
        *("--served-model-name", name, "--host", host, "--port", str(port)),
        *("--enable-prefix-caching", "--stream-interval", "8"),
        *("--dtype", "float32", "--enforce-eager", "--block-size", "32", "--max-model-len", "2048"),
    ]
