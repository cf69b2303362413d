"""The claims of a long answer: each by a density matrix of its own (method, section 14)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import features
from service.claims.fields import Field, fields
from service.claims.segments import Segment, claims
from service.scoring.judging import Applied
from service.scoring.score import Claim, ScoreWarning, Support, warning
from service.spectral.born import born_probability
from service.spectral.claims import match
from service.spectral.dev_set import Overlaps
from service.spectral.maps import Identity
from service.spectral.spectrum import spectrum_from_gram

MAX_CLAIMS = 64  # of one answer

Unit = Segment | Field
Claims = Sequence[Unit]


def are_long(texts: Sequence[str], from_characters: int) -> bool:
    """Tell whether half of the texts have so many characters or more; 0: none has."""
    return 0 < from_characters <= sorted(map(len, texts))[len(texts) // 2]


@dataclass(frozen=True, slots=True, eq=False)
class Said:
    """What each distinct answer drawn says, and a candidate: in sentences, or in fields of JSON."""

    by_text: Mapping[str, Claims]

    def of(self, text: str) -> Claims:
        """Return what a text says."""
        return self.by_text[text]

    @property
    def sentences(self) -> list[str]:
        """Return the distinct sentences, which are to be embedded; of fields the values are compared."""
        every = chain.from_iterable(self.by_text.values())
        return list(dict.fromkeys(one.text for one in every if isinstance(one, Segment)))


def said(texts: Sequence[str], candidate: str | None, question: str | None) -> Said:
    """Return what the distinct answers say, and the candidate."""
    every = texts if candidate is None else [*texts, candidate]
    return Said({text: fields(text) or claims(text, question=question or "") for text in every})


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """What m answers drawn say of one claim.

    overlaps: of the distinct things said, and then of each answer that does not speak of it; its one target
    is the claim. said: those things, in words.
    """

    overlaps: Overlaps
    said: Sequence[str]


def outcomes_of(
    judged: Claims, drawn: Sequence[Claims], vectors: dict[str, NDArray[np.float32]]
) -> list[Outcomes]:
    """Return what the answers drawn, m in number, say of each claim of the judged text.

    vectors: (d,) of each sentence. Fields are matched by path and compared as text; claims in sentences have
    of each answer the nearest one.
    """
    if isinstance(judged[0], Field):
        values = [{one.path: one.value for one in answer if isinstance(one, Field)} for answer in drawn]
        return [
            _by_path(one.value, [known.get(one.path) for known in values])
            for one in judged
            if isinstance(one, Field)
        ]
    table = list(dict.fromkeys(one.text for one in chain.from_iterable(drawn) if isinstance(one, Segment)))
    row = {text: i for i, text in enumerate(table)}
    answers = [[row[one.text] for one in answer if isinstance(one, Segment)] for answer in drawn]
    own = np.array([vectors[one.text] for one in judged])
    if not table:
        return [_by_path("", [None] * len(drawn)) for _ in judged]
    matched = match(own, np.array([vectors[text] for text in table]), answers)
    spoken = (nearest[speaks] for nearest, speaks in zip(matched.nearest, matched.speaks(), strict=True))
    return [
        Outcomes(overlaps, [table[i] for i in np.unique(rows)])
        for overlaps, rows in zip(matched.overlaps(), spoken, strict=True)
    ]


def _by_path(value: str, values: Sequence[str | None]) -> Outcomes:
    """Return what is said of a field by values of its path: equal ones are one, others are orthogonal."""
    known = list(dict.fromkeys(one for one in values if one is not None))
    silent = iter(range(len(known), len(known) + len(values)))
    index = np.array([next(silent) if one is None else known.index(one) for one in values])
    target = np.zeros((1, int(index.max()) + 1))
    if value in known:
        target[0, known.index(value)] = 1.0
    return Outcomes(Overlaps(np.eye(target.shape[1]), target, index), known)


@dataclass(frozen=True, slots=True, eq=False)
class ClaimScores:
    """The claims of a text, scored. found: how many it makes; share: how much of it they are, 0..1."""

    claims: list[Claim]
    found: int
    share: float
    applied: Applied | None


def score_claims(
    said_: Said,
    judged: str,
    drawn: Sequence[str],
    vectors: dict[str, NDArray[np.float32]],
    dimension: int,
    applied: Applied | None,
) -> ClaimScores:
    """Return the claims of the judged text with their scores by the m answers drawn.

    judged: the candidate, or one of the answers. vectors: of each sentence, (d,). applied: the calibration of
    claims; None: raw values.
    """
    found = said_.of(judged)
    kept = found[:MAX_CLAIMS]
    outcomes = outcomes_of(kept, [said_.of(text) for text in drawn], vectors) if kept else []
    scored = [
        _scored(claim, said_of_it, dimension, applied)
        for claim, said_of_it in zip(kept, outcomes, strict=True)
    ]
    return ClaimScores(scored, len(found), share(judged, found), applied)


def _scored(
    claim: Unit,
    outcomes: Outcomes,
    dimension: int,
    applied: Applied | None,
) -> Claim:
    overlaps, count = outcomes.overlaps, len(outcomes.overlaps.index)
    counts = np.bincount(overlaps.index, minlength=len(overlaps.cosines))
    spectrum = spectrum_from_gram(overlaps.cosines, counts, dimension)
    map_ = Identity() if applied is None else applied.map
    served = map_.serve(spectrum.eigenvalues, spectrum.dimension)
    [cosines] = overlaps.targets
    born = born_probability(spectrum, served, cosines)
    spoken = len(outcomes.said)
    agrees = np.square(spectrum.projections[:spoken]).argmax(axis=1) == (
        -1 if born.mode is None else born.mode
    )
    agree = int(counts[:spoken][agrees].sum())
    silent = int(counts[spoken:].sum())
    rank = None
    if applied is not None and applied.default is not None and born.mode is not None:
        columns = features(born.probability, served.entropy)
        rank = float(applied.default.rank(applied.method, count, columns, spectrum.dimension).item())
    differing = np.flatnonzero(~agrees)
    example = outcomes.said[differing[cosines[differing].argmin()]] if differing.size else None
    return Claim.model_construct(
        text=claim.text,
        start=claim.start,
        end=claim.end,
        lambda_max=served.lambda_max,
        entropy=served.entropy,
        probability=born.probability,
        rank_score=rank,
        support=Support.model_construct(
            agree=agree, differ=count - silent - agree, silent=silent, example=example
        ),
    )


def claims_left_out(scores: ClaimScores) -> list[ScoreWarning]:
    """Return a warning where a text makes more claims than are scored."""
    left_out = scores.found - len(scores.claims)
    if not left_out:
        return []
    message = (
        f"The text makes {scores.found} claims: the first {len(scores.claims)} are scored, the other "
        f"{left_out} are left out."
    )
    return [warning("claims_left_out", message)]


def share(judged: str, claims_: Claims) -> float:
    """Return how much of a text is claims, 0..1, by its characters other than white space."""
    whole = len("".join(judged.split()))
    spoken = sum(len("".join(judged[one.start : one.end].split())) for one in claims_)
    return spoken / whole if whole else 0.0
