"""The claims of a long answer: each by a density matrix of its own (method, section 14)."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import features
from service.calibration.default import DefaultCalibration
from service.claims.facts import facts
from service.claims.fields import Field, fields
from service.claims.segments import Segment, claims
from service.embedding.port import EmbedderIdentity
from service.scoring.command import ScoreCommand
from service.scoring.judging import Applied
from service.scoring.score import Claim, ClaimSupport, ScoreWarning, warning
from service.spectral.born import born_probability
from service.spectral.claims import MatchedUnits, Support
from service.spectral.maps import Identity
from service.spectral.spectrum import Spectrum, spectrum_from_gram

MAX_CLAIMS = 64  # of one answer
# Of all answers to a prompt: reading 150 characters takes up to a millisecond, embedding a sentence several.
MAX_CHARACTERS, MAX_SENTENCES = 200_000, 1000

Unit = Segment | Field
Claims = Sequence[Unit]


@dataclass(frozen=True, slots=True, eq=False)
class Said:
    """What each distinct answer drawn says, and a candidate: in sentences, or in fields of JSON."""

    by_text: Mapping[str, Claims]
    is_too_long: bool = False  # nothing was read

    @property
    def sentences(self) -> list[str]:
        """Return the distinct sentences, which are to be embedded; of fields the values are compared."""
        every = chain.from_iterable(self.by_text.values())
        return list(dict.fromkeys(one.text for one in every if isinstance(one, Segment)))


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """What m answers drawn say of one claim.

    cosines: (k,) of the claim to the k outcomes that made the spectrum. instead: what an answer that differs
    says, the least like the claim.
    """

    spectrum: Spectrum
    cosines: NDArray[np.float64]
    support: Support
    instead: str | None


def outcomes_of(
    judged: Claims,
    drawn: Sequence[Claims],
    vectors: Mapping[str, NDArray[np.float32]],
    dimension: int,
    *,
    question: str = "",
) -> list[Outcomes]:
    """Return what the answers drawn say of each claim of the judged text.

    vectors: (d,) of each sentence. Fields are matched by path and their values compared as text; a sentence
    is compared with the nearest one of each answer. What the question names is no fact of theirs.
    """
    values = [{one.path: one.value for one in answer if isinstance(one, Field)} for answer in drawn]
    sentences = [one for one in judged if isinstance(one, Segment)]
    if not sentences:
        return [
            _of_field(one.value, [known.get(one.path) for known in values], dimension)
            for one in judged
            if isinstance(one, Field)
        ]
    table = list(dict.fromkeys(one.text for one in chain.from_iterable(drawn) if isinstance(one, Segment)))
    row = {text: i for i, text in enumerate(table)}
    answers = [[row[one.text] for one in answer if isinstance(one, Segment)] for answer in drawn]
    known = facts([*(one.text for one in sentences), *table], question=question)
    units = MatchedUnits.of(
        [vectors[one.text] for one in sentences],
        [vectors[text] for text in table],
        answers,
        (known[: len(sentences)], known[len(sentences) :]),
    )
    differ = units.speak() & ~units.agree()
    instead = [
        None if not some.any() else table[nearest[np.where(some, cosines, np.inf).argmin()]]
        for some, nearest, cosines in zip(differ, units.nearest, units.cosines, strict=True)
    ]
    return [
        Outcomes(*spectrum, support, text)
        for spectrum, support, text in zip(units.spectra(), units.support(), instead, strict=True)
    ]


def _of_field(value: str, values: Sequence[str | None], dimension: int) -> Outcomes:
    """Return what is said of a field: equal values are one outcome, others are orthogonal to it."""
    told = Counter(one for one in values if one is not None)
    silent = len(values) - told.total()
    counts = [*told.values(), *[1] * silent]
    cosines = np.zeros(len(counts))
    if value in told:
        cosines[list(told).index(value)] = 1.0
    others = [one for one, _ in told.most_common() if one != value]
    support = Support(told[value], told.total() - told[value], silent)
    spectrum = spectrum_from_gram(np.eye(len(counts)), counts, dimension)
    return Outcomes(spectrum, cosines, support, others[0] if others else None)


@dataclass(frozen=True, slots=True, eq=False)
class ClaimScores:
    """The claims of a text, scored. found: how many it makes; share: how much of it they are, 0..1."""

    claims: list[Claim]
    found: int
    share: float
    applied: Applied | None
    is_too_long: bool


class ClaimScorer:
    """Scores answers claim by claim: where that is asked for, and those of `from_characters` or more.

    `from_characters` 0: only where it is asked for. `default`: the calibration of claims that serves; None:
    raw values do.
    """

    def __init__(self, default: DefaultCalibration | None = None, from_characters: int = 0) -> None:
        self._default = default
        self._from_characters = from_characters

    async def read(
        self, command: ScoreCommand, texts: Sequence[str], candidate: str | None, num_samples: int
    ) -> Said | None:
        """Return what the distinct answers say, and the candidate; None where claims are not to be scored.

        One answer agrees with itself, whatever it claims.
        """
        wanted = self._is_long(texts if candidate is None else [candidate])
        wanted = wanted if command.claims is None else command.claims
        if not wanted or num_samples < 2:
            return None
        every = texts if candidate is None else [*texts, candidate]
        return await asyncio.to_thread(_read, every, command.question or "")

    def scores(
        self,
        command: ScoreCommand,
        said: Said,
        judged: str,
        drawn: Sequence[str],
        vectors: Mapping[str, NDArray[np.float32]],
        made_by: EmbedderIdentity,
    ) -> ClaimScores:
        """Return the claims of the judged text with their scores by the m answers drawn.

        judged: the candidate, or one of the answers. vectors: of each sentence, (d,).
        """
        found = said.by_text[judged]
        kept = found[:MAX_CLAIMS]
        told = [said.by_text[text] for text in drawn]
        outcomes = list[Outcomes]()
        if kept:
            question = command.question or ""
            outcomes = outcomes_of(kept, told, vectors, made_by.dimension, question=question)
        applied = self._applied(command, len(drawn), made_by)
        scored = [_scored(*one, applied) for one in zip(kept, outcomes, strict=True)]
        return ClaimScores(scored, len(found), share(judged, found), applied, said.is_too_long)

    def _is_long(self, texts: Sequence[str]) -> bool:
        """Tell whether half of the texts are."""
        return 0 < self._from_characters <= sorted(map(len, texts))[len(texts) // 2]

    def _applied(self, command: ScoreCommand, num_samples: int, made_by: EmbedderIdentity) -> Applied | None:
        if self._default is None or command.calibration == "none":
            return None
        calibration = self._default.under(made_by)
        if num_samples > calibration.num_samples:
            return None
        return Applied(calibration, calibration.map_for(num_samples), default=self._default)


def _read(texts: Sequence[str], question: str) -> Said:
    if sum(map(len, texts)) <= MAX_CHARACTERS:
        said = Said({text: fields(text) or claims(text, question=question) for text in texts})
        if len(said.sentences) <= MAX_SENTENCES:
            return said
    return Said(dict.fromkeys(texts, ()), is_too_long=True)


def _scored(claim: Unit, outcomes: Outcomes, applied: Applied | None) -> Claim:
    spectrum, support = outcomes.spectrum, outcomes.support
    map_ = Identity() if applied is None else applied.map
    served = map_.serve(spectrum.eigenvalues, spectrum.dimension)
    born = born_probability(spectrum, served, outcomes.cosines)
    rank = None
    if applied is not None and applied.default is not None and born.mode is not None:
        columns = features(born.probability, served.entropy)
        count = support.agree + support.differ + support.silent
        rank = float(applied.default.rank(applied.method, count, columns, spectrum.dimension).item())
    return Claim.model_construct(
        text=claim.text,
        start=claim.start,
        end=claim.end,
        lambda_max=served.lambda_max,
        entropy=served.entropy,
        probability=born.probability,
        rank_score=rank,
        support=ClaimSupport.model_construct(**asdict(support), example=outcomes.instead),
    )


def claims_left_out(scores: ClaimScores) -> list[ScoreWarning]:
    """Return a warning where a text makes more claims than are scored."""
    if scores.is_too_long:
        message = (
            f"The answers hold more than {MAX_CHARACTERS} characters or {MAX_SENTENCES} sentences in all: no "
            "claims are scored."
        )
        return [warning("claims_left_out", message)]
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
