"""The claims of a long answer: each by a density matrix of its own (method, section 13)."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import (
    Selector,
    answer_columns,
    claim_features,
    token_features,
)
from service.calibration.rows import MAX_CLAIMS
from service.claims.facts import beyond, fact_places
from service.claims.fields import Field, fields
from service.claims.matching import Support, match_claims
from service.claims.refusals import is_refusal
from service.claims.segments import Segment, claims
from service.scoring.choice import Applied
from service.scoring.judging import decide
from service.scoring.score import (
    CalibrationUsed,
    Claim,
    ClaimSupport,
    ScoreCommand,
    ScoreWarning,
    Target,
    warning,
)
from service.sharing import Threads
from service.spectral.correctness_model import Columns
from service.spectral.reliability import rounded_ties
from service.spectral.spectrum import (
    BornProbability,
    CalibrationMap,
    DepolarizedMap,
    Identity,
    ServedSpectrum,
    Spectrum,
    TemperatureMap,
    born_probability,
    spectrum_from_gram,
)

# Of all answers to a prompt: reading 150 characters takes up to a millisecond, embedding a sentence several.
MAX_CHARACTERS, MAX_SENTENCES = 200_000, 1000
# Claims times drawn answers: half a second of work.
MAX_COMPARED = 4096

# Of a text, how much its tokens have to spell, and characters between two of them that none spells.
SPELT, MAX_GAP = 0.9, 8

Unit = Segment | Field
Claims = Sequence[Unit]


@dataclass(frozen=True, slots=True, eq=False)
class Said:
    """What each distinct answer drawn says, and a candidate: in sentences, or in fields of JSON."""

    by_text: Mapping[str, Claims]
    question: str
    is_too_long: bool = False  # nothing was read

    def is_json(self, text: str) -> bool:
        """Tell whether a text was read as fields: those of no calibration fitted on sentences."""
        return any(isinstance(one, Field) for one in self.by_text[text])

    @property
    def sentences(self) -> list[str]:
        """Return the distinct sentences."""
        every = chain.from_iterable(self.by_text.values())
        return list(dict.fromkeys(one.text for one in every if isinstance(one, Segment)))

    def to_embed(self) -> list[str]:
        """Return the distinct sentences, and what they say beyond the question; of fields, nothing."""
        return list(dict.fromkeys([*self.sentences, *beyond(self.sentences, self.question)]))


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

    def born(self, map_: CalibrationMap) -> tuple[BornProbability, ServedSpectrum]:
        """Return p(y) of the claim under a map, and the spectrum served."""
        served = map_.serve(self.spectrum.eigenvalues, self.spectrum.dimension)
        return born_probability(self.spectrum, served, self.cosines), served


def outcomes_of(
    judged: Claims,
    drawn: Sequence[Claims],
    vectors: Mapping[str, NDArray[np.float32]],
    dimension: int,
    *,
    question: str = "",
) -> Iterator[Outcomes]:
    """Yield the outcomes of the drawn answers for each claim of the judged text.

    vectors: (d,) of each sentence, and of what it says beyond the question. Fields are matched by path and
    their values compared as text; a sentence is compared with the nearest one of each answer.
    """
    sentences = [one for one in judged if isinstance(one, Segment)]
    if not sentences:
        answers_by_path = [
            {field.path: field.value for field in answer if isinstance(field, Field)} for answer in drawn
        ]
        for field in judged:
            if isinstance(field, Field):
                values = [by_path.get(field.path) for by_path in answers_by_path]
                yield _of_field(field.value, values, dimension)
        return
    answers = [[one.text for one in answer if isinstance(one, Segment)] for answer in drawn]
    for one in match_claims([sentence.text for sentence in sentences], answers, vectors, question=question):
        counts = np.bincount(one.index, minlength=len(one.outcomes))
        gram = one.outcomes @ one.outcomes.T
        # The dimension of embeddings, as for short answers: else a map would spread what it cannot place over
        # nothing.
        yield Outcomes(
            spectrum_from_gram(gram, counts, dimension), one.outcomes @ one.claim, one.support, one.example
        )


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


@dataclass(frozen=True, slots=True)
class SpokenLogprobs:
    """Of the tokens of a claim, in nats: all of them, those of its facts, and the least likely of these."""

    total: float
    facts: float
    least: float


@dataclass(frozen=True, slots=True, eq=False)
class ClaimScores:
    """The claims of a text, scored. share: how much of it they are, 0..1.

    calibration: that served; all_correct: P(every claim is right), None where nothing tells.
    """

    claims: list[Claim]
    share: float
    calibration: CalibrationUsed | None
    all_correct: float | None
    warnings: list[ScoreWarning]


class ClaimScorer:
    """Scores answers claim by claim: where that is asked for, and those of `from_characters` or more.

    `from_characters` 0: only where it is asked for. `threads` compute the scores.
    """

    def __init__(self, from_characters: int = 0, *, threads: Threads | None = None) -> None:
        self._from_characters = from_characters
        self._threads = threads or Threads("claims")

    async def read(
        self, command: ScoreCommand, texts: Sequence[str], candidate: str | None, num_samples: int
    ) -> Said | None:
        """Return what the distinct answers say, and the candidate; None where claims are not to be scored.

        One answer agrees with itself, whatever it claims. Where there is none, log-probabilities tell.
        """
        wanted = self._is_long(texts if candidate is None else [candidate])
        wanted = wanted if command.claims is None else command.claims
        if not wanted or num_samples == 1:
            return None
        texts = texts if candidate is None else [*texts, candidate]
        question = command.question or ""
        if sum(map(len, texts)) > MAX_CHARACTERS:
            return Said(dict.fromkeys(texts, ()), question, is_too_long=True)
        claims_of_texts = await self._threads.collect(_read(texts, question))
        said = Said(dict(zip(texts, claims_of_texts, strict=True)), question)
        is_too_long = len(said.sentences) > MAX_SENTENCES
        return Said(dict.fromkeys(texts, ()), question, is_too_long=True) if is_too_long else said

    async def scores(
        self,
        command: ScoreCommand,
        said: Said,
        judged: str,
        drawn: Sequence[str],
        vectors: Mapping[str, NDArray[np.float32]],
        dimension: int,
        applied: Applied | None,
        *,
        unlike: bool,
    ) -> ClaimScores:
        """Return the claims of the judged text with their scores by the m answers drawn.

        judged: the candidate, or one of the answers. vectors: of each sentence, (d,). unlike: the question is
        too unlike those of the calibration for anything to be let through.
        """
        found = said.by_text[judged]
        kept = found[: min(MAX_CLAIMS, MAX_COMPARED // max(len(drawn), 1))]
        answers = [said.by_text[text] for text in drawn]
        outcomes = outcomes_of(kept, answers, vectors, dimension, question=command.question or "")
        computed = await self._threads.collect(outcomes)
        work = partial(_scores_of_outcomes, command, said, judged, kept, computed, len(drawn), applied)
        return await self._threads.run(work, unlike=unlike)

    def scores_alone(
        self, command: ScoreCommand, said: Said, judged: str, applied: Applied | None, *, unlike: bool
    ) -> ClaimScores:
        """Return the claims of the candidate by its own log-probabilities: no answer was drawn."""
        found = said.by_text[judged]
        kept = found[:MAX_CLAIMS]
        spoken = spoken_logprobs(judged, kept, command.candidate_tokens, said.question)
        known = {i: one for i, one in enumerate(spoken) if one is not None}
        columns = token_columns(spoken)
        selector = None if applied is None else applied.calibration.selectors.get(0)
        verdicts = _Verdicts([None] * len(known))
        if selector is not None and known:
            verdicts = _judged(selector, columns, [True] * len(known), command.target, 0, unlike=unlike)
        of_known = dict(zip(known, verdicts.claims, strict=True))
        scored = list[Claim]()
        for i, one in enumerate(kept):
            rank = math.exp(known[i].least) if i in known and applied is None else None
            scored.append(_claim(one, rank, of_known.get(i), spoken[i]))
        about = [*claims_left_out(said, len(found), len(kept)), *verdicts.warnings]
        all_correct = verdicts.all_correct if len(known) == len(found) else None
        used = None if selector is None or applied is None else applied.used
        return ClaimScores(scored, share(judged, found), used, all_correct, about)

    def _is_long(self, texts: Sequence[str]) -> bool:
        """Tell whether half of the texts are."""
        return 0 < self._from_characters <= sorted(map(len, texts))[len(texts) // 2]


def _scores_of_outcomes(
    command: ScoreCommand,
    said: Said,
    judged: str,
    kept: Claims,
    outcomes: Sequence[Outcomes],
    num_drawn: int,
    applied: Applied | None,
    *,
    unlike: bool,
) -> ClaimScores:
    """Return the scores of the kept claims: the first claims of the judged text. outcomes: one per claim."""
    found = said.by_text[judged]
    spoken = spoken_logprobs(judged, kept, command.candidate_tokens, said.question)
    selector = None if applied is None else applied.calibration.selectors.get(num_drawn)
    tokens = dict[str, NDArray[np.float64]]()
    if selector is not None and selector.with_tokens is not None and None not in spoken:
        selector, tokens = selector.with_tokens, token_columns(spoken)
    verdicts = _Verdicts([None] * len(kept))
    if selector is not None and kept:
        # The model was fitted with the selector's map. Claims have no map by evidence.
        assert isinstance(selector.map, DepolarizedMap | TemperatureMap)
        born = [outcome.born(selector.map) for outcome in outcomes]
        columns = claim_features([p.probability for p, _ in born], [served.entropy for _, served in born])
        spoken_of = [outcome.support.spoken_of for outcome in outcomes]
        verdicts = _judged(selector, columns | tokens, spoken_of, command.target, num_drawn, unlike=unlike)
    parts = zip(kept, outcomes, verdicts.claims, spoken, strict=True)
    scored = [
        _scored(claim, outcome, applied, verdict, logprobs) for claim, outcome, verdict, logprobs in parts
    ]
    about = [*claims_left_out(said, len(found), len(kept)), *verdicts.warnings]
    used = None if applied is None else applied.used
    all_correct = verdicts.all_correct if len(kept) == len(found) else None
    return ClaimScores(scored, share(judged, found), used, all_correct, about)


def token_columns(spoken: Sequence[SpokenLogprobs | None]) -> dict[str, NDArray[np.float64]]:
    """Return the features of the claims whose tokens' log-probabilities are known."""
    known = [one for one in spoken if one is not None]
    values = np.array([(one.facts, one.least, one.total) for one in known], dtype=np.float64)
    return token_features(*values.reshape(-1, 3).T)


def _read(texts: Sequence[str], question: str) -> Iterator[Claims]:
    for text in texts:
        yield [] if is_refusal(text, question) else fields(text) or claims(text, question=question)


Verdict = tuple[float | None, Literal["answer", "abstain"] | None]  # P(correct), and what to do


@dataclass(frozen=True, slots=True, eq=False)
class _Verdicts:
    """What a calibration's verdicts tell of claims, and of the answer that makes them."""

    claims: Sequence[Verdict | None]
    all_correct: float | None = None
    warnings: Sequence[ScoreWarning] = ()


def _judged(
    selector: Selector,
    columns: Columns,
    spoken_of: Sequence[bool],
    target: Target | None,
    num_samples: int,
    *,
    unlike: bool,
) -> _Verdicts:
    """Return P(correct) and the decision of each claim; columns: (n,) each; num_samples: answers drawn.

    A claim of which no answer speaks has none: it is not let through.
    """
    correct = selector.model.predict(columns)
    action, threshold, about = None, None, list[ScoreWarning]()
    if target is not None:
        decision, about = decide(selector.counts, None, target, num_samples)
        threshold = decision.threshold
        action = None if threshold is None and target.by_default else decision.action
    verdicts = list[Verdict]()
    for p, known in zip(correct.tolist(), spoken_of, strict=True):
        passes = threshold is not None and rounded_ties(p) >= rounded_ties(threshold)
        let = known and passes and not unlike
        verdicts.append((p if known else None, "answer" if let else action))
    whole = None
    if selector.all_correct is not None:
        of_answer = answer_columns(correct, np.zeros(correct.size, dtype=np.intp))
        whole = float(selector.all_correct.predict(of_answer).item())
    return _Verdicts(verdicts, whole, about)


def _scored(
    claim: Unit,
    outcomes: Outcomes,
    applied: Applied | None,
    verdict: Verdict | None,
    spoken: SpokenLogprobs | None,
) -> Claim:
    born, served = outcomes.born((applied and applied.map) or Identity())
    support = outcomes.support
    rank = born.probability if applied is None and support.spoken_of else None
    of_support = ClaimSupport.model_construct(**asdict(support), example=outcomes.instead)
    return _claim(claim, rank, verdict, spoken).model_copy(
        update={
            "lambda_max": served.lambda_max,
            "entropy": served.entropy,
            "probability": born.probability,
            "support": of_support,
        }
    )


def _claim(claim: Unit, rank: float | None, verdict: Verdict | None, spoken: SpokenLogprobs | None) -> Claim:
    """Return a claim without what answers drawn say of it."""
    correct, decision = verdict or (None, None)
    return Claim.model_construct(
        text=claim.text,
        start=claim.start,
        end=claim.end,
        lambda_max=None,
        entropy=None,
        probability=None,
        rank_score=rank,
        probability_correct=correct,
        decision=decision,
        logprob=None if spoken is None else spoken.total,
        fact_logprob=None if spoken is None else spoken.facts,
        least_logprob=None if spoken is None else spoken.least,
        support=None,
    )


def spoken_logprobs(
    text: str, claims_: Claims, tokens: Sequence[tuple[str, float]], question: str
) -> list[SpokenLogprobs | None]:
    """Return the log-probabilities of each claim's tokens; None where they are not known.

    tokens: of the text, as drawn. Tokens of another text are not used.
    """
    spelt = align_tokens(text, tokens)
    if spelt is None:
        return [None] * len(claims_)
    begin, end, values = spelt
    places = fact_places([text[one.start : one.end] for one in claims_], question)
    found = list[SpokenLogprobs | None]()
    for one, of_facts in zip(claims_, places, strict=True):
        mine = (begin < one.end) & (end > one.start)
        told = mine & np.any(
            [(begin < one.start + last) & (end > one.start + first) for first, last in of_facts], axis=0
        )
        told = told if told.any() else mine
        total, facts = float(values[mine].sum()), values[told]
        found.append(SpokenLogprobs(total, float(facts.sum()), float(facts.min())) if mine.any() else None)
    return found


def align_tokens(
    text: str, tokens: Sequence[tuple[str, float]]
) -> tuple[NDArray[np.int_], NDArray[np.int_], NDArray[np.float64]] | None:
    """Return where each token of the text begins and ends, and its log-probability, (k,) each.

    White space around the text and replacement characters are skipped. None for tokens of another text.
    """
    joined = "".join(token for token, _ in tokens)
    begun, before, kept = max(joined.rfind(text), 0), 0, list[tuple[str, float]]()
    for token, value in tokens:
        before += len(token)
        if before > begun:  # what goes before may say the same: reasoning
            kept.append((token if kept else token.lstrip(), value))
    starts, ends, at = list[int](), list[int](), 0
    for token, _ in kept:
        found = text.find(token, at, at + len(token) + MAX_GAP)
        starts.append(max(found, at))
        at = starts[-1] + (len(token) if found >= 0 else 0)
        ends.append(at)
    begin, end = np.array(starts), np.array(ends)
    if (end - begin).sum() < SPELT * len(text):
        return None
    return begin, end, np.array([value for _, value in kept])


def claims_left_out(said: Said, num_claims: int, num_scored: int) -> list[ScoreWarning]:
    """Return a warning if a text makes more claims than are scored."""
    if said.is_too_long:
        message = (
            f"The answers hold more than {MAX_CHARACTERS} characters or {MAX_SENTENCES} sentences in all: no "
            "claims are scored."
        )
        return [warning("claims_left_out", message)]
    if num_claims <= num_scored:
        return []
    message = (
        f"The text makes {num_claims} claims: the first {num_scored} are scored, the other "
        f"{num_claims - num_scored} are left out."
    )
    if num_scored < MAX_CLAIMS:
        message += " With fewer answers more claims are scored."
    return [warning("claims_left_out", message)]


def share(judged: str, claims_: Claims) -> float:
    """Return how much of a text is claims, 0..1, by its characters other than white space."""
    whole = len("".join(judged.split()))
    spoken = sum(len("".join(judged[one.start : one.end].split())) for one in claims_)
    return spoken / whole if whole else 0.0
