"""Algorithm 1 beside a straight one that flattens d x d matrices: time and peak memory, one thread each.

    python -m benchmarks.algorithm1_speed [PROMPTS ...]

Each side runs in a process of its own, starts from the same float32 answers and draws the same diagram. Time
is processor time, so that a busy machine does not decide; memory is the peak beyond interpreter and answers.
The straight side is treated well: it scales in place, keeps float32, and finds its targets as ours does. Its
rounding can move a prompt between clusters that are as good as tied, so at 400 prompts it also runs in
float64, for the diagram alone.
"""

import functools
import itertools
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import scipy.cluster.hierarchy  # noqa: F401  imported here, so that neither side pays for it

from benchmarks.spectral_worlds import DIMENSION, prompts
from service.spectral.algorithm1 import Clustering, algorithm1, cluster_prompts
from service.spectral.density import DensityStack
from service.spectral.dev_set import Answers
from service.spectral.reliability import ReliabilityDiagram
from service.spectral.spectrum import spectrum

SAMPLES = 20
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
WORLDS = {"all 20 answers distinct": 1.0, "10 of 20 distinct, as recorded": 0.5}
MIB = 2**20


def counts(answers: Answers) -> np.ndarray:
    return np.bincount(answers.index, minlength=len(answers.vectors))


def ours(answers: list[Answers], lambda_max: np.ndarray) -> Clustering:
    stack = DensityStack.of([a.vectors for a in answers], [counts(a) for a in answers])
    return cluster_prompts(stack, lambda_max)


def straight(answers: list[Answers], lambda_max: np.ndarray, precision: type = np.float32) -> Clustering:
    flat = np.empty((len(answers), DIMENSION * DIMENSION), dtype=precision)
    for number, one in enumerate(answers):
        drawn = one.vectors[one.index].astype(precision)
        np.matmul(drawn.T, drawn, out=flat[number].reshape(DIMENSION, DIMENSION))
        flat[number] /= np.linalg.norm(flat[number])
    # A bin is all of its prompts: cosines bin by bin, put where `cluster_prompts` looks for them.
    cosines = np.zeros((len(answers), len(answers)))
    edges = np.quantile(lambda_max, np.linspace(0, 1, 9))
    edges[0], edges[-1] = 0, 1
    for low, high in itertools.pairwise(edges):
        members = np.flatnonzero((lambda_max > low) & (lambda_max <= high))
        rows = flat[members]
        cosines[np.ix_(members, members)] = rows @ rows.T
    nothing = DensityStack.of(list(np.ones((len(answers), 1))))
    return cluster_prompts(nothing, lambda_max, cosines=cosines)


SIDES = {"ours": ours, "straight": straight, "float64": functools.partial(straight, precision=np.float64)}


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / MIB


def measure(side: str, count: int, share: float) -> dict[str, object]:
    """Run one side in this process; return seconds, MiB and the diagram."""
    answers = prompts(count, SAMPLES, share)
    lambda_max = np.array([spectrum(a.vectors, counts(a)).eigenvalues[0] for a in answers])
    targets = DensityStack.of([a.references for a in answers])
    before, started = resident_mib(), time.process_time()
    clustering = SIDES[side](answers, lambda_max)
    diagram: ReliabilityDiagram = algorithm1(clustering, targets)
    seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "seconds": seconds,
        "mib": peak - before,
        "target": diagram.mean_target.tolist(),
        "ece": diagram.ece,
    }


def in_process_of_its_own(side: str, count: int, share: float) -> dict[str, object]:
    command = [sys.executable, "-m", "benchmarks.algorithm1_speed", side, str(count), str(share)]
    done = subprocess.run(command, check=True, capture_output=True, env={**os.environ, **ONE_THREAD})
    return json.loads(done.stdout)


def apart(one: dict[str, object], other: dict[str, object]) -> str:
    return f"{np.abs(np.subtract(one['target'], other['target'])).max():.0e}"


def compare(name: str, count: int, share: float) -> None:
    fast, slow = (in_process_of_its_own(side, count, share) for side in ("ours", "straight"))
    print(f"{count} prompts, {name}: {fast['seconds']:.2f} s beside {slow['seconds']:.2f} s", end=" ")
    print(
        f"(x {slow['seconds'] / fast['seconds']:.1f}), {fast['mib']:.0f} MiB beside {slow['mib']:.0f}",
        end=" ",
    )
    print(f"(x {slow['mib'] / fast['mib']:.0f}); diagrams apart by {apart(fast, slow)}", end="")
    if count <= 400:
        print(f", in float64 by {apart(fast, in_process_of_its_own('float64', count, share))}", end="")
    print(flush=True)


def main() -> None:
    for count in map(int, sys.argv[1:] or ("400", "2000")):
        for name, share in WORLDS.items():
            compare(name, count, share)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
    else:
        main()
