"""What a newcomer tries: each row's own answer, then nonsense in its place, judged by the same answers."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from service.calibration.calibration import Calibration, caller_fingerprint
from service.calibration.fitting import fit_selectors
from service.calibration.labels import FullRows
from service.calibration.material import Material, all_texts, assemble
from service.calibration.rows import DevRow
from service.embedding.port import outcome_vectors, texts_to_embed
from service.scoring.score import Score, ScoreCommand, Target
from service.scoring.scorer import Scorer
from service.spectral.evidence import EvidenceMap
from tests.support.calibrations import Active
from tests.support.evidence import by_evidence
from tests.support.fakes import FakeEmbedder, FakeLLM

NONSENSE = ("Qwertyuiop zebra", "")
LAX = Target(0.98, 0.5)  # whoever may be let through at all, is


def deciding(rows: Sequence[DevRow], embedder: FakeEmbedder) -> Calibration:
    """A calibration by evidence for answers labelled `mine`, with maps of selectors fitted on rows."""
    found = fit_selectors(FullRows(_material(rows, embedder)), "evidence", rng=np.random.default_rng(0))
    selectors = {m: one.selector for m, one in found.items() if one.selector is not None}
    maps = {m: one.map for m, one in selectors.items() if isinstance(one.map, EvidenceMap)}
    wanted = caller_fingerprint("mine", embedder.identity)
    made = by_evidence(fingerprint=wanted, selectors=selectors)
    return replace(made, evidence=maps, num_samples=max(maps))


def _material(rows: Sequence[DevRow], embedder: FakeEmbedder) -> Material:
    texts = all_texts(rows)
    embedded = asyncio.run(embedder.embed(texts_to_embed(texts, "outcome")))
    place = {text: i for i, text in enumerate(texts)}
    vectors = outcome_vectors(texts, embedded.vectors)
    return assemble(rows, max(len(one.draws) for one in rows), vectors, place, embedder.dimension)


def judged(
    rows: Sequence[DevRow], m: int, calibration: Calibration, embedder: FakeEmbedder
) -> list[Mapping[str, Score]]:
    """The scores of each row's first m answers: of its "own" answer, of "another" row's, and of nonsense.

    An empty text is none where an answer drawn was empty: it is then what the LLM said.
    """
    scorer = Scorer(FakeLLM(), embedder, Active(calibration))

    async def all_of() -> list[Mapping[str, Score]]:
        found = []
        for one, other in zip(rows, [*rows[1:], rows[0]], strict=True):
            said = {draw.text for draw in one.draws[:m]}
            nonsense = {text: text for text in NONSENSE if text not in said}
            texts = {"own": one.answer, "another": other.answer} | nonsense
            found.append({name: await scorer.score(_asked(one, m, text)) for name, text in texts.items()})
        return found

    return asyncio.run(all_of())


def _asked(one: DevRow, m: int, candidate: str | None) -> ScoreCommand:
    draws = one.draws[:m]
    logprobs = tuple(draw.total_logprob for draw in draws if draw.total_logprob is not None)
    texts = tuple(draw.text for draw in draws)
    return ScoreCommand(
        samples=texts, logprobs=logprobs, source_label="mine", candidate=candidate, target=LAX
    )


def check(trial: Sequence[Mapping[str, Score]]) -> int:
    """Hold every row to the rules for texts that no answer supports; return how many own were let through."""
    through = 0
    for scores in trial:
        for name, score in scores.items():
            _check_one(score)
            _check_order(scores["own"], score)
            assert name not in NONSENSE or score.decisive is None
        through += _action(scores["own"]) == "answer"
    return through


def _action(score: Score) -> str:
    assert score.decision is not None
    return score.decision.action


def _check_one(score: Score) -> None:
    found = score.candidate
    assert found is not None
    assert (found.mode is None) == (found.probability_correct is None)
    assert (found.mode is None) == ("unsupported_candidate" in [one.code for one in score.warnings])
    assert found.mode is not None or _action(score) == "abstain"


def _check_order(own: Score, other: Score) -> None:
    """Of two texts that the same answers support, the likelier meant is no less likely right."""
    first, second = own.candidate, other.candidate
    assert first is not None
    assert second is not None
    if first.probability_correct is not None and second.probability_correct is not None:
        rises = (first.probability - second.probability) * (
            first.probability_correct - second.probability_correct
        )
        assert rises >= -1e-12
