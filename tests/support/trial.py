"""A newcomer's trial: each row's own answer, then nonsense instead, judged by the same samples."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from service.calibration.calibration import Calibration, caller_fingerprint
from service.calibration.fitting import fit_points, folds
from service.calibration.labels import LabelledRows
from service.calibration.material import DevSet, all_texts, assemble
from service.calibration.rows import DevRow
from service.scoring.score import Score, ScoreCommand, Target
from service.scoring.scorer import Scorer
from service.spectral.evidence import EvidenceMap
from tests.support.calibrations import Active
from tests.support.evidence import by_evidence
from tests.support.fakes import FakeEmbedder, FakeLLM

NONSENSE = "Qwertyuiop zebra"
LAX = Target(0.98, 0.5)  # lets through all answers that may be let through at all


def deciding(rows: Sequence[DevRow], embedder: FakeEmbedder) -> Calibration:
    """Return an evidence calibration for answers labelled `mine`, with the maps of fitted selectors."""
    labelled = LabelledRows(_material(rows, embedder))
    fits = fit_points(labelled, "evidence", folds(labelled, 0), rng=np.random.default_rng(0))
    selectors = {m: fit.selector for m, fit in fits.items() if fit.selector is not None}
    maps = {m: selector.map for m, selector in selectors.items() if isinstance(selector.map, EvidenceMap)}
    wanted = caller_fingerprint("mine", embedder.identity)
    made = by_evidence(fingerprint=wanted, selectors=selectors)
    return replace(made, evidence=maps, num_samples=max(maps))


def _material(rows: Sequence[DevRow], embedder: FakeEmbedder) -> DevSet:
    texts = all_texts(rows)
    embedded = asyncio.run(embedder.embed(texts))
    place = {text: i for i, text in enumerate(texts)}
    return assemble(rows, max(len(row.draws) for row in rows), embedded.vectors, place, embedder.dimension)


def judged(
    rows: Sequence[DevRow], m: int, calibration: Calibration, embedder: FakeEmbedder
) -> list[Mapping[str, Score]]:
    """Return scores by each row's first m samples: of its own answer, another row's, and nonsense."""
    scorer = Scorer(FakeLLM(), embedder, Active(calibration))

    async def all_of() -> list[Mapping[str, Score]]:
        scores = []
        for row, next_row in zip(rows, [*rows[1:], rows[0]], strict=True):
            texts = {"own": row.answer, "another": next_row.answer, NONSENSE: NONSENSE}
            scores.append({name: await scorer.score(_asked(row, m, text)) for name, text in texts.items()})
        return scores

    return asyncio.run(all_of())


def _asked(row: DevRow, m: int, candidate: str | None) -> ScoreCommand:
    draws = row.draws[:m]
    logprobs = tuple(draw.total_logprob for draw in draws if draw.total_logprob is not None)
    texts = tuple(draw.text for draw in draws)
    return ScoreCommand(
        len(texts), samples=texts, logprobs=logprobs, source_label="mine", candidate=candidate, target=LAX
    )


def check(trial: Sequence[Mapping[str, Score]]) -> int:
    """Check the rules for unsupported texts on each row; return the number of own answers let through."""
    through = 0
    for scores in trial:
        for name, score in scores.items():
            _check_one(score)
            _check_order(scores["own"], score)
            assert name != NONSENSE or score.decisive is None
        through += _action(scores["own"]) == "answer"
    return through


def _action(score: Score) -> str:
    assert score.decision is not None
    return score.decision.action


def _check_one(score: Score) -> None:
    candidate = score.candidate
    assert candidate is not None
    assert (candidate.mode is None) == (candidate.probability_correct is None)
    assert candidate.mode is not None or _action(score) == "abstain"


def _check_order(own: Score, other: Score) -> None:
    """Check that P(correct) does not fall with p(y), for two texts supported by the same answers."""
    first, second = own.candidate, other.candidate
    assert first is not None
    assert second is not None
    if first.probability_correct is not None and second.probability_correct is not None:
        rises = (first.probability - second.probability) * (
            first.probability_correct - second.probability_correct
        )
        assert rises >= -1e-12
