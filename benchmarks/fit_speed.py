"""Speed of our fit and of a naive fit with float32 d x d matrices, in one thread; and our peak memory.

    python -m benchmarks.fit_speed

Both start from the embeddings and choose the paper's temperature. The naive fit builds each 768 x 768 density
matrix, computes its float32 eigh, and evaluates the mean risk at 11 temperatures from its eigenvectors. It is
timed on a few prompts and scaled to all, because each prompt costs one eigh. Times are processor seconds of
this process, so other load on the machine does not count. Our time depends on the number of distinct answers:
10.7 of 20 in the recorded answers; the same model, asked 150 of the same questions 100 times each, gave 37.8
of 100 (5 to 77 for nine questions in ten).
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.spectral_worlds import DIMENSION, prompt, prompts, recorded
from lab.vectors import Answers, dev_set
from service.spectral.fit import fit_depolarized, fit_temperature

PROMPTS = 300
STRAIGHT_PROMPTS = 30
TEMPERATURES = np.geomspace(0.5, 20.0, 11)
EPS = 1e-10


def straight(answers: list[Answers]) -> float:
    """Return the grid temperature with the least mean risk, from d x d matrices in float32."""
    risks = np.zeros((len(answers), TEMPERATURES.size))
    for row, answers_ in enumerate(answers):
        drawn = answers_.vectors[answers_.index]
        values, columns = np.linalg.eigh(drawn.T @ drawn / np.float32(len(drawn)))
        target = np.square(columns.T @ answers_.references[0])
        clipped = np.maximum(values, np.float32(EPS))
        for at, temperature in enumerate(TEMPERATURES):
            scaled = clipped ** np.float32(1 / temperature)
            risks[row, at] = -(target @ np.log(scaled / scaled.sum()))
    return float(TEMPERATURES[risks.mean(axis=0).argmin()])


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the median processor time of the work."""
    taken = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return float(np.median(taken))


def compare(name: str, answers: list[Answers]) -> None:
    sample = answers[:: len(answers) // STRAIGHT_PROMPTS]
    slow = seconds(lambda: straight(sample), 3) * len(answers) / len(sample)
    distinct = np.mean([len(answers_.vectors) for answers_ in answers])
    temperature = seconds(lambda: fit_temperature(dev_set(answers, DIMENSION)), 9)
    depolarized = seconds(lambda: fit_depolarized(dev_set(answers, DIMENSION)), 9)
    print(
        f"{name:<42} {distinct:6.1f} distinct  straight {slow:6.1f} s (scaled from {len(sample)} prompts)  "
        f"temperature {temperature * 1e3:6.1f} ms = {slow / temperature:5.0f}x  "
        f"depolarized {depolarized * 1e3:6.1f} ms = {slow / depolarized:5.0f}x"
    )


def peak(distinct: int) -> None:
    """Fit 2,000 prompts of 100 answers and print the peak memory of this process, including vectors."""
    rng = np.random.default_rng(0)
    prompts_ = [prompt(rng, 100, distinct) for _ in range(2000)]
    fit_depolarized(dev_set(prompts_, DIMENSION))
    mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    held = sum(prompt_.vectors.nbytes + prompt_.references.nbytes for prompt_ in prompts_) / 2**20
    print(
        f"2,000 prompts x 100 answers, {distinct} distinct: peak {mebibytes:.0f} MiB, "
        f"{held:.0f} MiB of them the caller's float32 vectors"
    )


def main() -> None:
    answers = recorded(PROMPTS)
    if answers is not None:
        compare("m = 20, recorded TriviaQA answers", answers)
    compare("m = 100, made up, distinct as the model's", prompts(PROMPTS, 100, 0.38))
    subprocess.run([sys.executable, "-m", "benchmarks.fit_speed", "100"], check=True)


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        peak(int(sys.argv[1])) if len(sys.argv) > 1 else main()
