"""Scores of single claims in composed long answers (method, section 13).

    python -m benchmarks.claims [--embedder all-mpnet-base-v2]

Needs ../shared/data and the embedder's weights. The 700 recorded TriviaQA rows of both files, shuffled, make
233 answers of three claims each: the sentences "question: answer." of three rows, in a random order in each
sample; sample j of an answer has sample j of its rows. A claim is right if its row's answer is right.

All figures are cross-validated: maps (fitted to "question: reference."), features and models come from the
other four fifths of the composed answers, over `DIVISIONS` divisions into fifths by answer. No question is
in two answers. Intervals are bootstraps over answers; differences are paired. "mean best cosine" equals the
score of a sentence in UQLM's LongTextUQ with mode matched_unit (cosine_sim), except for its scale.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.recorded_evidence import DATA, DEV, TEST, Recorded, embedded
from service.calibration.labels import Judged
from service.claims.kernel import compared_texts
from service.claims.matching import MatchedClaim, Matcher
from service.spectral.correctness_model import (
    fit_correctness,
    held_out_predictions,
    log_losses,
    stratified_folds,
)
from service.spectral.dev_set import Overlaps, born_probabilities, risks, served_lambda_max, solve, weighted
from service.spectral.fit import fit_depolarized
from service.spectral.reliability import auroc, reliability_diagram, resampled_aurocs
from service.spectral.resampling import ResampleCounts, percentile_interval
from service.spectral.spectrum import CalibrationMap, TemperatureMap

CLAIMS, SIZES, DIVISIONS, RESAMPLES, SHUFFLES = 3, (3, 5, 10, 20), 5, 1000, 6
SHORT, MATCHED, WHOLE, COSINE = (
    "short answers alone",
    "nearest sentences",
    "whole answers",
    "mean best cosine",
)
Floats = np.ndarray


@dataclass
class Table:
    """Unit vectors of distinct texts by an embedder."""

    embedder: str
    vectors: dict[str, Floats] = field(default_factory=dict)

    def learn(self, texts: Sequence[str]) -> None:
        new = sorted(set(texts) - self.vectors.keys(), key=len)
        vectors = embedded(new, self.embedder)
        if len(vectors) < len(new):
            sys.exit(f"The weights {self.embedder} are not here: python -m service weights fetch them")
        self.vectors |= vectors

    def of(self, texts: Sequence[str]) -> Floats:
        return np.stack([self.vectors[text] for text in texts])

    def whole(self, text: str, drawn: Sequence[str]) -> Overlaps:
        """Return the overlaps of whole texts with each other and with the judged text."""
        place = {text: i for i, text in enumerate(dict.fromkeys(drawn))}
        rows = self.of(list(place))
        index = np.array([place[text_] for text_ in drawn])
        return Overlaps(rows @ rows.T, self.of([text]) @ rows.T, index)


@dataclass(frozen=True)
class Answer:
    """A composed answer: its claims, their references, and the sentences of m samples.

    rows: the rows that it is composed of; right: the verdict on each claim.
    """

    rows: list[dict[str, Any]]
    claims: list[str]
    references: list[str]
    drawn: list[list[str]]
    right: list[bool]

    @property
    def question(self) -> str:
        return " ".join(row["prompt"] for row in self.rows)

    def texts(self) -> list[str]:
        sentences = [*self.claims, *self.references, *chain(*self.drawn)]
        return [*sentences, *compared_texts(sentences, self.question)]


def compose(m: int, *, seed: int = 0) -> list[Answer]:
    """Return answers of three claims."""
    data = [Recorded(name, embed=False) for name in (TEST, DEV)]
    rows = [
        row | {"right": bool(right)}
        for recorded_ in data
        for row, right in zip(recorded_.rows, recorded_.right, strict=True)
    ]
    order = np.random.default_rng(seed).permutation(len(rows))
    rng = np.random.default_rng([seed, m])

    def sentence(row: dict[str, Any], answer: str) -> str:
        return f"{row['prompt']}: {answer.strip()}."

    answers = []
    for chosen in order[: len(rows) // CLAIMS * CLAIMS].reshape(-1, CLAIMS).tolist():
        rows_ = [rows[i] for i in chosen]
        drawn = []
        for j in range(m):
            rng.random(CLAIMS)  # keeps the random stream, and so the published figures
            drawn.append([sentence(rows_[i], rows_[i]["samples"][j]) for i in rng.permutation(CLAIMS)])
        claims = [sentence(row, row["answer"]) for row in rows_]
        references = [sentence(row, row["reference"]) for row in rows_]
        answers.append(Answer(rows_, claims, references, drawn, [row["right"] for row in rows_]))
    return answers


def head(*names: str) -> str:
    """Return the head of a table."""
    return f"| {' | '.join(names)} |\n|{'---|' * len(names)}"


class World:
    """Composed answers with m samples, and their claims in the form of each score."""

    def __init__(self, answers: Sequence[Answer], table: Table) -> None:
        self.answers, self._table = answers, table
        table.learn(list(chain(*(answer.texts() for answer in answers))))
        self.right = np.array(list(chain(*(answer.right for answer in answers))))
        self.group = np.repeat(np.arange(len(answers)), CLAIMS)
        self.matches = [
            match
            for answer in answers
            for claim, reference in zip(answer.claims, answer.references, strict=True)
            for match in Matcher(
                [claim], answer.drawn, table.vectors, question=answer.question, references=[reference]
            ).matches()
        ]

    def judged(self, texts: list[Overlaps], rows: list[Overlaps], groups: np.ndarray | None = None) -> Judged:
        """Return the judged rows. groups: the answer of each claim; None: the rows are whole answers."""
        dimension = next(iter(self._table.vectors.values())).size
        made = [solve([weighted(one) for one in each], dimension) for each in (rows, texts)]
        size, none = len(self.right), np.zeros(len(self.right), dtype=np.bool_)
        return Judged(made[0], made[1], self.right, none, "given", np.arange(size), groups)

    def matched(self) -> Judged:
        def against(match: MatchedClaim, row: int) -> Overlaps:
            """Return the overlaps of the claim (row k) or the reference (row k + 1, 0 where none speaks)."""
            k = match.num_outcomes
            of_row = match.kernel[row : row + 1, :k] if row < len(match.kernel) else np.zeros((1, k))
            return Overlaps(match.kernel[:k, :k], of_row, match.index)

        texts = [against(match, match.num_outcomes) for match in self.matches]
        return self.judged(texts, [against(m, m.num_outcomes + 1) for m in self.matches], self.group)

    def _plain(self, texts_of_rows: Sequence[tuple[str, str, list[str]]]) -> Judged:
        """Judge each text by whole answers, like short ones. Rows are (text, reference, samples)."""
        self._table.learn(
            list(chain(*([text, reference, *drawn] for text, reference, drawn in texts_of_rows)))
        )
        texts, rows = list[Overlaps](), list[Overlaps]()
        for text, reference, drawn in texts_of_rows:
            texts.append(self._table.whole(text, drawn))
            rows.append(self._table.whole(reference, drawn))
        return self.judged(texts, rows)

    def short(self) -> Judged:
        names = ("answer", "reference", "samples")
        parts = [tuple(row[name] for name in names) for answer in self.answers for row in answer.rows]
        m = len(self.answers[0].drawn)
        return self._plain([
            (text.strip(), reference.strip(), [draw.strip() for draw in drawn[:m]])
            for text, reference, drawn in parts
        ])  # fmt: skip

    def whole(self) -> Judged:
        joined = [
            (" ".join(answer.claims), " ".join(answer.references), [" ".join(draw) for draw in answer.drawn])
            for answer in self.answers
        ]
        return self._plain([answer for answer in joined for _ in range(CLAIMS)])

    def best_cosines(self) -> Floats:
        """Return the mean over the samples, with 0 for a sample without a sentence, as in UQLM."""
        return np.array([np.maximum(match.cosines, 0).mean() for match in self.matches])


@dataclass(frozen=True)
class Held:
    """Cross-validated figures of the claims (n,), as means over the divisions."""

    lambda_max: Floats
    risk: Floats
    correct: Floats
    loss: Floats


def divisions(world: World) -> list[Floats]:
    rngs = (np.random.default_rng(seed) for seed in range(DIVISIONS))
    return [stratified_folds(world.right, 5, rng, world.group) for rng in rngs]


def held_out(rows: Judged, world: World) -> Held:
    figures = []
    for fold in divisions(world):
        maps: list[CalibrationMap] = [fit_depolarized(rows.rows.take(fold != k)).map for k in range(5)]
        by_fold = [rows.columns(map_) for map_ in maps]
        p = fit_correctness(by_fold[0], rows.right, fold, by_fold=by_fold, groups=world.group).held_out
        assert p is not None
        top, risk = np.empty((2, rows.right.size))
        for k, map_ in enumerate(maps):
            held_rows = rows.rows.take(fold == k)
            top[fold == k], risk[fold == k] = served_lambda_max(map_, held_rows), risks(map_, held_rows)
        figures.append((top, risk, p, log_losses(p, rows.right)))
    return Held(*(np.mean(column, axis=0) for column in zip(*figures, strict=True)))


def held_out_cosine(world: World) -> Held:
    """Return P(correct) by a logistic regression on the mean best cosine only."""
    columns, right = {"cosine": world.best_cosines()}, world.right
    predictions = [held_out_predictions(columns, right, ("cosine",), fold) for fold in divisions(world)]
    undefined = np.full(right.size, np.nan)
    losses = np.mean([log_losses(p, right) for p in predictions], axis=0)
    return Held(undefined, undefined, np.mean(predictions, axis=0), losses)


@dataclass(frozen=True)
class Figure:
    """A figure and its values in the resamples of answers, which all figures share."""

    value: float
    drawn: Floats

    def __sub__(self, other: "Figure") -> "Figure":
        return Figure(self.value - other.value, self.drawn - other.drawn)

    def told(self, sign: str = "") -> str:
        interval = percentile_interval(self.drawn)
        return f"{self.value:{sign}.3f} ({interval.low:{sign}.3f} to {interval.high:{sign}.3f})"


class Figures:
    """Figures of the claims of one world, with resamples of its answers."""

    def __init__(self, world: World) -> None:
        rng = np.random.default_rng(0)
        self.right = world.right
        self.resamples = ResampleCounts.of(world.right.size, rng, RESAMPLES, world.group)

    def auroc(self, scores: Floats) -> Figure:
        return Figure(auroc(scores, self.right), resampled_aurocs(self.resamples, scores, self.right))

    def mean(self, values: Floats) -> Figure:
        return Figure(float(values.mean()), self.resamples.means(values))

    def ece(self, predicted: Floats, rows: Judged) -> Figure:
        p, c1 = np.clip(predicted, 0, 1), np.clip(rows.rows.alignment[:, 0], 0, 1)
        rows_of = (np.repeat(np.arange(p.size), counts) for counts in self.resamples.counts[:200].astype(int))
        drawn = [reliability_diagram(p[pick], c1[pick]).ece for pick in rows_of]
        return Figure(reliability_diagram(p, c1).ece, np.array(drawn))


def scores_of(world: World) -> tuple[dict[str, Judged], dict[str, Held]]:
    rows = {
        SHORT: world.short(),
        MATCHED: world.matched(),
        WHOLE: world.whole(),
    }
    held = {name: held_out(judged, world) for name, judged in rows.items()} | {COSINE: held_out_cosine(world)}
    return rows, held


def by_size(table: Table) -> None:
    """Print the main tables: each score by number of answers, and its difference from nearest sentences."""
    raw = TemperatureMap(1.0)
    names = ("AUROC: lambda_max", "p(y)", "P(correct)", "projection ECE: raw", "calibrated", "log loss")
    gaps = []
    for m in SIZES:
        world = World(compose(m), table)
        rows, held = scores_of(world)
        figures = Figures(world)
        figures_by_name: dict[str, list[Figure | None]] = {}
        for name, held_ in held.items():
            judged = rows.get(name)
            ranked: list[Figure | None] = [None, figures.auroc(world.best_cosines())]
            eces: list[Figure | None] = [None, None]
            if judged is not None:
                top = served_lambda_max(raw, judged.rows)
                ranked = [figures.auroc(top), figures.auroc(born_probabilities(raw, judged.texts))]
                eces = [figures.ece(top, judged), figures.ece(held_.lambda_max, judged)]
            figures_by_name[name] = [*ranked, figures.auroc(held_.correct), *eces, figures.mean(held_.loss)]
        if m == SIZES[0]:
            count = f"{len(world.answers)} answers, {world.right.size} claims, {world.right.sum()} right"
            print(f"{count}; {table.embedder}\n{head('m', 'score', *names)}")
        for name, cells in figures_by_name.items():
            shown = " | ".join("" if cell is None else cell.told() for cell in cells)
            print(f"| {m} | {name} | {shown} |", flush=True)
        for name, cells in figures_by_name.items():
            if name != MATCHED:
                pairs = zip(figures_by_name[MATCHED], cells, strict=True)
                less = [(a - b).told("+") if a and b else "" for a, b in pairs]
                gaps.append(f"| {m} | {name} | {less[0]} | {less[1]} | {less[2]} | {less[5]} |")
    print("\nNearest sentences, less the score (the AUROC of the mean best cosine stands beside p(y))")
    print(head("m", "score", *names[:3], names[5]))
    print("\n".join(gaps), flush=True)


def by_shuffle(table: Table) -> None:
    """Compare nearest sentences with short answers over several shuffles of the rows."""
    print(f"\nOver {SHUFFLES} shuffles, AUROC of p(y)\n{head('m', SHORT, MATCHED, 'difference', 'sd')}")
    for m in (3, 10):
        aurocs = []
        for seed in range(SHUFFLES):
            world = World(compose(m, seed=seed), table)
            made = (world.short(), world.matched())
            aurocs.append(
                [auroc(born_probabilities(TemperatureMap(1.0), judged.texts), world.right) for judged in made]
            )
        (short, matched), less = np.mean(aurocs, axis=0), np.diff(aurocs)
        print(f"| {m} | {short:.3f} | {matched:.3f} | {less.mean():+.3f} | {less.std(ddof=1):.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--embedder", default="all-MiniLM-L6-v2", help="all-mpnet-base-v2 takes ten times longer"
    )
    table = Table(parser.parse_args().embedder)
    if not DATA.is_dir():
        sys.exit("The recorded answers are not beside this checkout: ../shared/data")
    by_size(table)
    by_shuffle(table)


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
