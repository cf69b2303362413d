"""How long the service takes to start: import of the application, and from exec to ready with MiniLM at hand.

Beside each, in the same run: an empty interpreter, and the import of sentence_transformers alone, which is
what starting an embedder costs before any of ours.
"""

import statistics
import subprocess
import time
from pathlib import Path

from benchmarks.processes import PYTHON, free_port, running, wait_for

RUNS = 5


def seconds(code: str) -> float:
    """Return the median wall time of a fresh interpreter that runs `code`."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run([PYTHON, "-c", code], check=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def ready() -> float:
    """Return the median time from exec to /readyz with MiniLM and an LLM server elsewhere (not counted)."""
    times = []
    for _ in range(RUNS):
        port = free_port()
        env = {
            "EIGENCAL_PORT": str(port),
            "EIGENCAL_EMBEDDER": "all-MiniLM-L6-v2",
            "EIGENCAL_LLM_BACKEND": "embedded",
        }
        start = time.perf_counter()
        with running([PYTHON, "-m", "service"], env=env, log=Path("data") / "bench-service.log") as server:
            wait_for(f"http://127.0.0.1:{port}/readyz", server, 120)
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    empty = seconds("pass")
    app = seconds("import service.app")
    library = seconds("import sentence_transformers, transformers")
    whole = ready()
    print(f"empty interpreter {empty:.2f} s; import service.app {app:.2f} s ({app / empty:.0f} times)")
    print(f"ready with MiniLM and the embedded LLM {whole:.2f} s;", end=" ")
    print(f"import of sentence_transformers alone {library:.2f} s (ratio {whole / library:.1f})")


if __name__ == "__main__":
    main()
