"""Scores of answers in sentences to questions with a passage, for each kernel, and their P(correct).

    python -m benchmarks.support NAME [--embedder all-mpnet-base-v2]

Needs `.cache/recorded/support_NAME_m20.jsonl` from `benchmarks.record`. The first `JUDGED` answers to each
question of `support_questions.toml` are judged by m of the others. Verdicts follow the rule, except for the
manual ones in `BY_EYE`. P(correct) uses the packaged maps without verdicts. "Few verdicts" adds the verdicts
on the texts of `FEW` questions and measures on the texts of the others; figures are means over `SPLITS`
random splits. Intervals are bootstraps over questions; differences are paired.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.claims import Figure, head
from benchmarks.recorded_evidence import RECORDED, embedded
from service.calibration.calibration import answer_features
from service.calibration.default import packaged
from service.claims.kernel import compared_texts, kernel_vectors, read_texts
from service.claims.verdicts import correct
from service.embedding.port import FACTS, PAPER, EmbedderIdentity, Kernel
from service.spectral.correctness_model import AGREEMENT, NO_VERDICTS, fit_model, log_losses
from service.spectral.evidence import missing_mass
from service.spectral.reliability import auroc, reliability_diagram, resampled_aurocs
from service.spectral.resampling import ResampleCounts
from service.spectral.spectrum import CalibrationMap, Identity, born_probability, spectrum_from_gram

JUDGED, SIZES, RESAMPLES, BINS = 5, (1, 3, 10, 15), 1000, 5
FEW, SPLITS = 6, 50
KERNELS: tuple[Kernel, ...] = (PAPER, FACTS)
# Manual verdicts on texts that the rule misjudges, by a part of the text.
BY_EYE = {
    "cheaper by 15 percent compared to the Starter plan": False,
    "cheaper by 15 percent compared to the Team plan": False,
    "paid for glasses is up to 250 dollars per year": False,
    "paid for glasses is $250 per year": False,
    "supports Python 3.10 and Python 3.9": False,
    "Yes, you must rebuild": False,
    "put 3 kilograms of wool": True,
}
Floats = np.ndarray


@dataclass(frozen=True)
class Judged:
    """A judged text, and the answers that judge it with their total log-probabilities in nats."""

    prompt: str
    text: str
    logprob: float
    drawn: list[str]
    logprobs: list[float]


def is_right(text: str, references: Sequence[str]) -> bool:
    by_eye = next((verdict for part, verdict in BY_EYE.items() if part in text), None)
    return correct(text, references) if by_eye is None else by_eye


def scores(judged: Judged, m: int, kernel: Kernel, vectors: dict[str, Floats], name: str) -> list[float]:
    """Return raw lambda_max, raw p(y), and P(correct) without verdicts."""
    drawn = list(dict.fromkeys(judged.drawn[:m]))
    texts = [*drawn, judged.text]
    compared = compared_texts(texts, judged.prompt, kernel)
    space = np.stack([vectors[text] for text in compared]).astype(np.float64)
    if kernel == FACTS:
        space = kernel_vectors(read_texts(texts, compared, judged.prompt, len(drawn)), space)
    index = [drawn.index(text) for text in judged.drawn[:m]]
    rows, own = space[:-1], space[-1]
    dimension = next(iter(vectors.values())).size
    spectrum = spectrum_from_gram(rows @ rows.T, np.bincount(index), dimension)

    def served(map_: CalibrationMap) -> tuple[float, float]:
        made = map_.serve(spectrum.eigenvalues, dimension)
        return made.lambda_max, born_probability(spectrum, made, rows @ own).probability

    embedder = EmbedderIdentity(name, "", dimension, "float32")
    map_ = packaged(kernel).under(embedder).evidence[m]
    lambda_max, p = served(map_.at(missing_mass(judged.logprobs[:m], index)))
    return [*served(Identity()), float(NO_VERDICTS.predict(answer_features([lambda_max], [p])).item())]


def after_few(agreement: Floats, right: Floats, group: Floats) -> tuple[float, float]:
    """Fit P(correct) on the verdicts of `FEW` questions, and return its ECE and log loss on the others."""
    rng, figures = np.random.default_rng(0), list[tuple[float, float]]()
    for _ in range(SPLITS):
        chosen = np.isin(group, rng.permutation(np.unique(group))[:FEW])
        model = fit_model({AGREEMENT: agreement[chosen]}, right[chosen], [AGREEMENT])
        p, verdicts = model.predict({AGREEMENT: agreement[~chosen]}), right[~chosen]
        ece = reliability_diagram(p, verdicts.astype(float), BINS).ece
        figures.append((ece, float(log_losses(p, verdicts).mean())))
    return float(np.mean([ece for ece, _ in figures])), float(np.mean([loss for _, loss in figures]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--embedder", default="all-MiniLM-L6-v2")
    options = parser.parse_args()
    lines = (RECORDED / f"support_{options.name}_m20.jsonl").read_text("utf-8").splitlines()
    judged, right, group = list[Judged](), list[bool](), list[int]()
    for number, row in enumerate(map(json.loads, lines)):
        others = row["samples"][JUDGED:], row["logprob"][JUDGED:]
        for text, total in zip(row["samples"][:JUDGED], row["logprob"][:JUDGED], strict=True):
            judged.append(Judged(row["prompt"], text, total, *others))
            right.append(is_right(text, row["reference"]))
            group.append(number)
    texts = list(dict.fromkeys(text for text_ in judged for text in (*text_.drawn, text_.text)))
    compared = [
        text
        for text_ in judged
        for kernel in KERNELS
        for text in compared_texts([*text_.drawn, text_.text], text_.prompt, kernel)
    ]
    vectors = embedded(sorted({*texts, *compared}, key=len), options.embedder)
    verdicts = np.array(right)
    resamples = ResampleCounts.of(verdicts.size, np.random.default_rng(0), RESAMPLES, np.array(group))

    def ranked(values: Floats) -> Figure:
        return Figure(auroc(values, verdicts), resampled_aurocs(resamples, values, verdicts))

    print(f"{verdicts.size} texts to {len(lines)} questions, {verdicts.mean():.1%} right; {options.embedder}")
    print(
        f"log-probability of the text: AUROC {ranked(np.array([text_.logprob for text_ in judged])).told()}"
    )
    columns = ("m", "kernel", "AUROC: lambda_max", "p(y)", "P(correct)", "mean", "ECE", "log loss")
    print(head(*columns, "ECE, few verdicts", "log loss, few verdicts", "p(y) less `paper`'s"))
    for m in SIZES:
        before: Figure | None = None
        for kernel in KERNELS:
            columns_ = np.array([scores(text_, m, kernel, vectors, options.embedder) for text_ in judged]).T
            figures = [ranked(column) for column in columns_]
            p = columns_[2]
            ece = reliability_diagram(p, verdicts.astype(float), BINS).ece
            less = "" if before is None else (figures[1] - before).told("+")
            before = figures[1]
            aurocs = " | ".join(text_.told() for text_ in figures)
            loss = log_losses(p, verdicts).mean()
            few, few_loss = after_few(np.log(p / (1 - p)), verdicts, np.array(group))
            ours = f"{p.mean():.2f} | {ece:.3f} | {loss:.3f} | {few:.3f} | {few_loss:.3f}"
            print(f"| {m} | {kernel} | {aurocs} | {ours} | {less} |", flush=True)


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
