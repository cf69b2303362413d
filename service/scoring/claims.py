"""The claims of a long answer, each scored by its own density matrix (method, section 13)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.calibration.calibration import (
    Selector,
    check_feature,
    claim_features,
    token_features,
)
from service.calibration.rows import MAX_CLAIMS
from service.claims.facts import fact_places
from service.claims.fields import Field, fields
from service.claims.kernel import compared_texts
from service.claims.matching import MatchedClaim, Matcher, Support
from service.claims.refusals import is_refusal
from service.claims.segments import Segment, claims
from service.llm.samples import Usage
from service.scoring.choice import ServedCalibration
from service.scoring.judge import decide
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
from service.spectral.correctness_model import SELF_CHECK, Columns
from service.spectral.reliability import rounded_ties
from service.spectral.spectrum import (
    DepolarizedMap,
    ServedSpectrum,
    Spectrum,
    TemperatureMap,
    born_probability,
    serve,
    spectrum_from_gram,
)

# For all answers to a prompt. Splitting 150 characters takes up to 1 ms, embedding a sentence several.
MAX_CHARACTERS, MAX_SENTENCES = 200_000, 1000
# Claims times drawn answers: half a second of work.
MAX_COMPARED = 4096

# Least share of a text that its tokens must spell, and most characters missing between two tokens.
SPELT, MAX_GAP = 0.9, 8

Unit = Segment | Field
NO_TOKENS = Usage()
Claims = Sequence[Unit]


@dataclass(frozen=True, slots=True, eq=False)
class AnswerClaims:
    """The claims of each distinct sample and of the candidate: sentences, or fields of JSON."""

    by_text: Mapping[str, Claims]
    question: str
    is_too_long: bool = False  # no claims were extracted

    def is_json(self, text: str) -> bool:
        """Return True if the claims of a text are fields. Calibrations are fitted only on sentences."""
        return any(isinstance(claim, Field) for claim in self.by_text[text])

    @property
    def sentences(self) -> list[str]:
        """Return the distinct sentences."""
        all_claims = chain.from_iterable(self.by_text.values())
        return list(dict.fromkeys(claim.text for claim in all_claims if isinstance(claim, Segment)))

    def to_embed(self) -> list[str]:
        """Return the distinct sentences, and their text beyond the question. Fields are not embedded."""
        return list(dict.fromkeys([*self.sentences, *compared_texts(self.sentences, self.question)]))


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """The outcomes of m samples for one claim.

    cosines: (k,) of the claim to the k outcomes in the spectrum. example: the text of the differing sample
    that is least like the claim; of a field, the most frequent other value.
    """

    spectrum: Spectrum
    cosines: NDArray[np.float64]
    support: Support
    example: str | None

    def born(self, temperature: float = 1.0, depolarization: float = 0.0) -> tuple[float, ServedSpectrum]:
        """Return p(y) of the claim and the spectrum, served by T and g."""
        served = serve(self.spectrum, temperature, depolarization)
        return born_probability(self.spectrum, served, self.cosines).probability, served


def matcher_of(
    judged: Claims, drawn: Sequence[Claims], vectors: Mapping[str, NDArray[np.float32]], question: str
) -> Matcher:
    """Return the matcher of the claims of the judged text.

    vectors: (d,) of each sentence, and of its text beyond the question.
    """
    answers = [[claim.text for claim in answer if isinstance(claim, Segment)] for answer in drawn]
    return Matcher([claim.text for claim in judged], answers, vectors, question=question)


def outcomes_of(matches: Iterable[MatchedClaim], dimension: int) -> Iterator[Outcomes]:
    """Yield the outcomes of the samples for each claim."""
    for match in matches:
        k, counts = match.num_outcomes, np.bincount(match.index)
        # The embedding dimension, as for short answers: maps spread weight over the other directions.
        found = spectrum_from_gram(match.kernel[:k, :k], counts, dimension)
        yield Outcomes(found, match.kernel[k, :k], match.support, match.example)


def outcomes_of_fields(judged: Claims, drawn: Sequence[Claims], dimension: int) -> Iterator[Outcomes]:
    """Yield the outcomes of the samples for each field, matched by path. Values are compared as text."""
    answers_by_path = [
        {field.path: field.value for field in answer if isinstance(field, Field)} for answer in drawn
    ]
    for field in judged:
        if isinstance(field, Field):
            yield _of_field(field.value, [by_path.get(field.path) for by_path in answers_by_path], dimension)


def _of_field(value: str, values: Sequence[str | None], dimension: int) -> Outcomes:
    """Return the outcomes for a field. Equal values are one outcome, different values are orthogonal."""
    value_counts = Counter(other for other in values if other is not None)
    silent = len(values) - value_counts.total()
    counts = [*value_counts.values(), *[1] * silent]
    cosines = np.zeros(len(counts))
    if value in value_counts:
        cosines[list(value_counts).index(value)] = 1.0
    others = [other for other, _ in value_counts.most_common() if other != value]
    support = Support(value_counts[value], value_counts.total() - value_counts[value], silent)
    spectrum = spectrum_from_gram(np.eye(len(counts)), counts, dimension)
    return Outcomes(spectrum, cosines, support, others[0] if others else None)


@dataclass(frozen=True, slots=True)
class ClaimLogprobs:
    """Log-probability of a claim, nats: of all tokens, of its facts' tokens, of the least likely of these."""

    total: float
    facts: float
    least: float


@dataclass(frozen=True, slots=True, eq=False)
class ClaimScores:
    """The scored claims of a text, and the calibration used."""

    claims: list[Claim]
    calibration: CalibrationUsed | None
    warnings: list[ScoreWarning]


class ClaimScorer:
    """Scores answers claim by claim, if requested or if they have at least `from_characters` characters.

    `from_characters` 0: only if requested. `threads` compute the scores.
    """

    def __init__(self, from_characters: int = 0, *, threads: Threads | None = None) -> None:
        self._from_characters = from_characters
        self._threads = threads or Threads("claims")

    async def read(
        self, command: ScoreCommand, texts: Sequence[str], candidate: str | None, num_samples: int
    ) -> AnswerClaims | None:
        """Return the claims of the distinct samples and the candidate; None if claims are not scored.

        With a single sample, claims are not scored: it agrees with itself, and with a candidate one sample
        says too little. Without samples, claims are scored by their log-probabilities.
        """
        wanted = self._is_long(texts if candidate is None else [candidate])
        wanted = wanted if command.claims is None else command.claims
        if not wanted or num_samples == 1:
            return None
        texts = [*texts] if candidate is None else [*texts, candidate]
        question = command.prompt.question or ""
        if sum(map(len, texts)) > MAX_CHARACTERS:
            return AnswerClaims(dict.fromkeys(texts, ()), question, is_too_long=True)
        claims_of_texts = await self._threads.collect(_read(texts, question))
        split = AnswerClaims(dict(zip(texts, claims_of_texts, strict=True)), question)
        is_too_long = len(split.sentences) > MAX_SENTENCES
        return AnswerClaims(dict.fromkeys(texts, ()), question, is_too_long=True) if is_too_long else split

    async def scores(
        self,
        command: ScoreCommand,
        answer_claims: AnswerClaims,
        judged: str,
        drawn: Sequence[str],
        vectors: Mapping[str, NDArray[np.float32]],
        dimension: int,
        applied: ServedCalibration | None,
        p_true: Sequence[float | None],
    ) -> ClaimScores:
        """Return the claims of the judged text, scored by the m samples, or without any by log-probabilities.

        judged: the candidate or a sample. vectors: (d,) of each sentence, and of its text beyond the
        question. p_true: the self-checks of its claims; see `to_check`.
        """
        kept, answers = _kept(answer_claims, judged, drawn)
        computed: Sequence[Outcomes | None] = [None] * len(kept)
        if kept and drawn and not answer_claims.is_json(judged):
            matcher = await self._threads.run(matcher_of, kept, answers, vectors, answer_claims.question)
            computed = await self._threads.collect(outcomes_of(matcher.matches(), dimension))
        elif drawn:
            computed = await self._threads.collect(outcomes_of_fields(kept, answers, dimension))
        return await self._threads.run(
            _scores_of_outcomes, command, answer_claims, judged, kept, computed, len(drawn), applied, p_true
        )

    def to_check(
        self,
        answer_claims: AnswerClaims,
        judged: str,
        drawn: Sequence[str],
        applied: ServedCalibration | None,
    ) -> list[str]:
        """Return the claims that the LLM must check, because the calibration's model needs it."""
        selector = None if applied is None else applied.calibration.selectors.get(len(drawn))
        if selector is None or SELF_CHECK not in selector.model.features:
            return []
        return [claim.text for claim in _kept(answer_claims, judged, drawn)[0]]

    def _is_long(self, texts: Sequence[str]) -> bool:
        """Return True if at least half of the texts are long."""
        return 0 < self._from_characters <= sorted(map(len, texts))[len(texts) // 2]


def _kept(answer_claims: AnswerClaims, judged: str, drawn: Sequence[str]) -> tuple[Claims, Sequence[Claims]]:
    """Return the claims of the judged text that are scored, and all claims of each sample."""
    most = min(MAX_CLAIMS, MAX_COMPARED // max(len(drawn), 1))
    return answer_claims.by_text[judged][:most], [answer_claims.by_text[text] for text in drawn]


def _scores_of_outcomes(
    command: ScoreCommand,
    answer_claims: AnswerClaims,
    judged: str,
    kept: Claims,
    outcomes: Sequence[Outcomes | None],
    num_drawn: int,
    applied: ServedCalibration | None,
    p_true: Sequence[float | None],
) -> ClaimScores:
    """Return the scores of the kept claims, the first of the judged text.

    outcomes: one per claim; None without samples. Claims are then judged by their own log-probabilities.
    Claims without the log-probabilities or the self-check that they need get no verdict.
    """
    all_claims = answer_claims.by_text[judged]
    logprobs = claim_logprobs(judged, kept, command.candidate_tokens, answer_claims.question)
    selector = None if applied is None else applied.calibration.selectors.get(num_drawn)
    judgeable = [i for i, values in enumerate(logprobs) if num_drawn or values is not None]
    is_checked = selector is not None and SELF_CHECK in selector.model.features
    if is_checked:
        judgeable = [i for i in judgeable if i < len(p_true) and p_true[i] is not None]
    verdicts: Sequence[Verdict | None] = [None] * len(judgeable)
    if selector is not None and judgeable:
        columns, spoken_of = dict[str, ArrayLike](), [True] * len(judgeable)
        if all(logprobs[i] is not None for i in judgeable):
            columns |= token_columns([logprobs[i] for i in judgeable])
        if is_checked:
            columns |= check_feature(np.array([p_true[i] for i in judgeable], dtype=np.float64))
        sampled = [outcome for i in judgeable if (outcome := outcomes[i]) is not None]
        if sampled:
            # The model was fitted with the selector's map. Claims have no map by evidence.
            assert isinstance(selector.map, DepolarizedMap | TemperatureMap)
            map_ = selector.map
            born = [outcome.born(map_.temperature, map_.depolarization) for outcome in sampled]
            columns |= claim_features([p for p, _ in born], [served.entropy for _, served in born])
            spoken_of = [outcome.support.spoken_of for outcome in sampled]
        verdicts = _verdicts(
            selector,
            columns,
            spoken_of,
            command.target,
            num_drawn,
        )
    verdict_of = dict(zip(judgeable, verdicts, strict=True))
    scored = [
        _scored(claim, outcomes[i], applied, verdict_of.get(i), logprobs[i]) for i, claim in enumerate(kept)
    ]
    about = claims_left_out(answer_claims, len(all_claims), len(kept))
    used = None if applied is None or (selector is None and not num_drawn) else applied.used
    return ClaimScores(scored, used, about)


def token_columns(logprobs: Sequence[ClaimLogprobs | None]) -> dict[str, ArrayLike]:
    """Return the features of the claims that have log-probabilities."""
    known = [claim for claim in logprobs if claim is not None]
    values = np.array([(claim.facts, claim.least, claim.total) for claim in known], dtype=np.float64)
    return token_features(*values.reshape(-1, 3).T)


def _read(texts: Sequence[str], question: str) -> Iterator[Claims]:
    for text in texts:
        yield [] if is_refusal(text, question) else fields(text) or claims(text, question=question)


Verdict = tuple[float | None, Literal["answer", "abstain"] | None]  # P(correct), and what to do


def _verdicts(
    selector: Selector,
    columns: Columns,
    spoken_of: Sequence[bool],
    target: Target | None,
    num_samples: int,
) -> list[Verdict]:
    """Return P(correct) and the decision of each claim.

    columns: (n,) each. spoken_of: whether a sample speaks of the claim; if not, the claim has no P(correct)
    and is not let through. num_samples: number of samples.
    """
    correct = selector.model.predict(columns)
    action, threshold = None, None
    if target is not None:
        decision = decide(selector.counts, None, target, num_samples)
        threshold = decision.threshold
        action = None if threshold is None else decision.action
    verdicts = list[Verdict]()
    for p, is_spoken_of in zip(correct.tolist(), spoken_of, strict=True):
        passes = threshold is not None and rounded_ties(p) >= rounded_ties(threshold)
        verdicts.append((p if is_spoken_of else None, "answer" if is_spoken_of and passes else action))
    return verdicts


def _scored(
    claim: Unit,
    outcomes: Outcomes | None,
    applied: ServedCalibration | None,
    verdict: Verdict | None,
    logprobs: ClaimLogprobs | None,
) -> Claim:
    """Return the score of a claim. outcomes: None without samples."""
    correct, decision = verdict or (None, None)
    spectrum, support = dict[str, float](), None
    if outcomes is not None:
        map_ = None if applied is None else applied.map
        p, served = outcomes.born(*((map_.temperature, map_.depolarization) if map_ else ()))
        spectrum = {
            "lambda_max": served.lambda_max,
            "entropy": served.entropy,
            "probability": p,
        }
        support = ClaimSupport.model_construct(**asdict(outcomes.support), example=outcomes.example)
    return Claim.model_construct(
        text=claim.text,
        start=claim.start,
        end=claim.end,
        lambda_max=spectrum.get("lambda_max"),
        entropy=spectrum.get("entropy"),
        probability=spectrum.get("probability"),
        probability_correct=correct,
        decision=decision,
        logprob=None if logprobs is None else logprobs.total,
        fact_logprob=None if logprobs is None else logprobs.facts,
        least_logprob=None if logprobs is None else logprobs.least,
        support=support,
    )


def claim_logprobs(
    text: str, claims_: Claims, tokens: Sequence[tuple[str, float]], question: str
) -> list[ClaimLogprobs | None]:
    """Return the log-probabilities of each claim's tokens; None if they are unknown.

    tokens: the text's tokens, each with its log-probability in nats. Tokens of another text are not used.
    """
    aligned = align_tokens(text, tokens)
    if aligned is None:
        return [None] * len(claims_)
    begin, end, values = aligned
    places = fact_places([text[claim.start : claim.end] for claim in claims_], question)
    logprobs = list[ClaimLogprobs | None]()
    for claim, of_facts in zip(claims_, places, strict=True):
        in_claim = (begin < claim.end) & (end > claim.start)
        in_facts = in_claim & np.any(
            [(begin < claim.start + last) & (end > claim.start + first) for first, last in of_facts], axis=0
        )
        in_facts = in_facts if in_facts.any() else in_claim
        total, facts = float(values[in_claim].sum()), values[in_facts]
        logprobs.append(
            ClaimLogprobs(total, float(facts.sum()), float(facts.min())) if in_claim.any() else None
        )
    return logprobs


def align_tokens(
    text: str, tokens: Sequence[tuple[str, float]]
) -> tuple[NDArray[np.int_], NDArray[np.int_], NDArray[np.float64]] | None:
    """Return the begin and end of each token in the text, and its log-probability, (k,) each.

    White space around the text and replacement characters are skipped. Return None for tokens of another
    text.
    """
    joined = "".join(token for token, _ in tokens)
    begun, before, kept = max(joined.rfind(text), 0), 0, list[tuple[str, float]]()
    for token, value in tokens:
        before += len(token)
        if before > begun:  # reasoning before the text may contain the same words
            kept.append((token if kept else token.lstrip(), value))
    starts, ends, at = list[int](), list[int](), 0
    for token, _ in kept:
        place = text.find(token, at, at + len(token) + MAX_GAP)
        starts.append(max(place, at))
        at = starts[-1] + (len(token) if place >= 0 else 0)
        ends.append(at)
    begin, end = np.array(starts), np.array(ends)
    if (end - begin).sum() < SPELT * len(text):
        return None
    return begin, end, np.array([value for _, value in kept])


def claims_left_out(answer_claims: AnswerClaims, num_claims: int, num_scored: int) -> list[ScoreWarning]:
    """Return a warning if a text makes more claims than are scored."""
    if answer_claims.is_too_long:
        message = (
            f"No claims are scored, because the answers have more than {MAX_CHARACTERS} characters or "
            f"{MAX_SENTENCES} sentences in total."
        )
        return [warning("claims_left_out", message)]
    if num_claims <= num_scored:
        return []
    message = (
        f"The text has {num_claims} claims. The first {num_scored} are scored, the other "
        f"{num_claims - num_scored} are left out."
    )
    if num_scored < MAX_CLAIMS:
        message += " With fewer answers, more claims are scored."
    return [warning("claims_left_out", message)]
