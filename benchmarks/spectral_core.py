"""The spectral core alone: one spectrum and its calibrated scores, beside an eigh of the density matrix.

    python -m benchmarks.spectral_core

One thread; processor time of this process, so that neighbours on the machine weigh on neither side.
"""

import time
import timeit
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.spectral_worlds import DIMENSION, prompt
from service.spectral.maps import DepolarizedMap
from service.spectral.spectrum import spectrum


def milliseconds(work: Callable[[], object], number: int) -> float:
    """Return the median processor time of one call."""
    return (
        float(np.median(timeit.repeat(work, timer=time.process_time, number=number, repeat=7))) / number * 1e3
    )


def compare(num_samples: int, distinct: int) -> None:
    one = prompt(np.random.default_rng(0), num_samples, distinct)
    counts, map_ = np.bincount(one.index), DepolarizedMap(0.92, 0.56)
    found = spectrum(one.vectors, counts)
    drawn = one.vectors[one.index]
    dense = milliseconds(lambda: np.linalg.eigh(drawn.T @ drawn / np.float32(num_samples)), 1)
    ours = milliseconds(lambda: spectrum(one.vectors, counts), 50)
    serve = milliseconds(lambda: map_.serve(found.eigenvalues, DIMENSION).entropy, 200)
    print(
        f"m = {num_samples:3d}, {distinct:3d} distinct: spectrum {ours:.3f} ms, "
        f"calibrated scores {serve:.3f} ms;"
        f" d x d eigh in float32 {dense:.1f} ms = {dense / (ours + serve):.0f}x"
    )


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        for num_samples, distinct in ((20, 10), (20, 20), (100, 33), (100, 100)):
            compare(num_samples, distinct)
