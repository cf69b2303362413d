"""Find the calibration that fits a request, if there is one."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import (
    Calibration,
    Fingerprint,
    Method,
    Unit,
    caller_fingerprint,
    service_fingerprint,
)
from service.calibration.rows import FEW_ROWS
from service.calibration.store import SqlCalibrations
from service.claims.comparison import Compare, compared_by
from service.claims.facts import words
from service.embedding.port import Embedder, EmbedderIdentity
from service.errors import NotFound
from service.llm.client import LLM
from service.llm.samples import Generation
from service.scoring.observation import Observation
from service.scoring.score import CalibrationUsed, Evidence, ScoreCommand, ScoreWarning, warning
from service.spectral.conformal import ConformalReference
from service.spectral.correctness_model import SELF_CHECK
from service.spectral.evidence import EvidenceMap
from service.spectral.spectrum import DepolarizedMap, TemperatureMap

NO_CALIBRATION = (
    "No calibration is active: values are raw, and the probability that an answer is right is unknown."
)
NO_EVIDENCE = warning(
    "evidence_missing",
    "The calibration uses log-probabilities, but these answers have none. Its parameters without "
    "log-probabilities are applied.",
)
BUNDLED = warning(
    "bundled_questions",
    "The calibration was fitted on bundled questions, not on yours. To improve it, calibrate on your own "
    "questions (POST /calibrate).",
)
WITHOUT_SAMPLES = warning(
    "bundled_questions",
    "Without drawn answers, this calibration's P(correct) and promises are about bundled questions: too few "
    "of its own rows have a log-probability of the judged text.",
)
FEW_OWN = warning(
    "bundled_questions",
    f"The calibration has fewer than {FEW_ROWS} rows, so its promises also count bundled questions.",
)
# Below this p-value a prompt counts as unlike the rows; so does at most this share of prompts like the rows.
MAX_OOD_P_VALUE = 0.02


@dataclass(frozen=True, slots=True)
class ServedCalibration:
    """The calibration that a score used, with the map for its number of answers.

    map: None without samples. evidence: the evidence map that made `map`; None if the answers have no
    log-probabilities, or the calibration needs none.
    """

    calibration: Calibration
    map: DepolarizedMap | TemperatureMap | None
    evidence: EvidenceMap | None = None

    @property
    def method(self) -> Method:
        """Return the method applied. Without log-probabilities it is not "evidence"."""
        if self.map is None:
            return self.calibration.method
        if self.evidence is not None:
            return "evidence"
        return "depolarized" if isinstance(self.map, DepolarizedMap) else "temperature"

    def needs_self_check(self, num_samples: int) -> bool:
        """Return True if P(correct) for this number of samples uses the self-check."""
        selector = self.calibration.selectors.get(num_samples)
        return selector is not None and SELF_CHECK in selector.model.features

    @property
    def used(self) -> CalibrationUsed:
        """Return the description of the calibration in a score."""
        temperature, depolarization, by_evidence = None, None, dict[str, float]()
        if self.map is not None:
            temperature = self.map.temperature
            depolarization = self.map.depolarization if isinstance(self.map, DepolarizedMap) else 0.0
        if self.evidence is not None:
            by_evidence = {
                "evidence_intercept": self.evidence.intercept,
                "evidence_slope": self.evidence.slope,
            }
        return CalibrationUsed.model_construct(
            None,
            id=self.calibration.id,
            method=self.method,
            temperature=temperature,
            depolarization=depolarization,
            created_at=self.calibration.created_at,
            kernel=self.calibration.fingerprint.kernel,
            origin=self.calibration.origin,
            **by_evidence,
        )


def applied_to(
    calibration: Calibration, num_samples: int, evidence: Evidence | None = None
) -> ServedCalibration | None:
    """Return the calibration with its map for this number of samples.

    None if the calibration has no map for this number, or for a single sample without evidence.
    """
    if num_samples == 0:
        return ServedCalibration(calibration, None)
    used_evidence = evidence if calibration.evidence else None
    if num_samples > calibration.num_samples or (num_samples == 1 and used_evidence is None):
        return None
    if used_evidence is None:
        return ServedCalibration(calibration, calibration.map_for(num_samples))
    map_ = calibration.map_for(num_samples, used_evidence.missing_mass)
    return ServedCalibration(calibration, map_, calibration.evidence[num_samples])


def mismatch(calibration: Calibration, differs: list[str], progress: str = "") -> ScoreWarning:
    """Return the warning that a calibration does not fit. progress: of the first one for this set-up."""
    message = (
        f"Calibration {calibration.id} is not used. It was fitted with a different {', '.join(differs)}. "
        f"{progress}"
    )
    return warning("calibration_mismatch", message.rstrip(), tuple(differs))


class CalibrationChoice:
    """Chooses the calibration of a request.

    A calibration that the request names must fit like the active ones, or it is not used. `compare`: how
    answers are compared if the request does not say. `progress`: of the first calibration, as a sentence.
    """

    def __init__(
        self,
        llm: LLM,
        embedder: Embedder,
        calibrations: SqlCalibrations,
        compare: Compare = "embeddings",
    ) -> None:
        self._llm = llm
        self._compare = compare
        self._embedder = embedder
        self._calibrations = calibrations
        self.progress = ""

    async def named(self, choice: str) -> Calibration | None:
        """Return the calibration with this id; None for "active" and "none". Raises NotFound."""
        if choice in ("active", "none"):
            return None
        calibration = await self._calibrations.get(choice)
        if calibration is None:
            raise NotFound("No calibration has the id given in `calibration`.")
        return calibration

    def is_by_llm(self, command: ScoreCommand) -> bool:
        """Return True if the LLM compares answers, where there are any."""
        return (command.compare or self._compare) == "llm"

    def fingerprint(
        self,
        command: ScoreCommand,
        generation: Generation | None = None,
        made_by: EmbedderIdentity | None = None,
    ) -> Fingerprint:
        """Return the fingerprint that a calibration needs to fit this request.

        Without the answers, the model that answered such a request last is used. Without `made_by`, the
        embedder is the current one.
        """
        embedder = made_by or self._embedder.identity
        if made_by is None and self.is_by_llm(command):
            embedder = compared_by(embedder, "")  # the LLM that compares is known afterwards
        if not command.is_drawn:
            return caller_fingerprint(command.source_label, embedder)
        identity = self._llm.identity(command)
        drawn_by = identity.of(generation) if generation else identity
        return service_fingerprint(drawn_by, command.sampling, embedder)

    def fitting(
        self,
        command: ScoreCommand,
        chosen: Calibration | None,
        generation: Generation | None = None,
        made_by: EmbedderIdentity | None = None,
        unit: Unit = "answer",
    ) -> tuple[Calibration | None, list[ScoreWarning]]:
        """Return the calibration that fits, or None and a warning, unless the request wants none.

        chosen: a calibration of claims is also compared for the whole answer; with a calibration of answers,
        claims use the active calibrations. Before the first answer, parts that only answers reveal do not
        count.
        """
        if command.calibration == "none":
            return None, []
        if chosen is not None and (unit == "answer" or chosen.fingerprint.unit == "claim"):
            candidates = [chosen]
        else:
            candidates = [made for made in self._calibrations.any_active() if made.fingerprint.unit == unit]
        if not candidates:
            return None, [warning("calibration_missing", f"{NO_CALIBRATION} {self.progress}".rstrip())]
        wanted = replace(self.fingerprint(command, generation, made_by), unit=unit)
        drawn = generation is not None and bool(generation.draws)
        is_known = drawn or not command.is_drawn or self._llm.identity(command).answered
        model = generation.model if generation else ""

        def differs(calibration: Calibration) -> list[str]:
            fitted, own = calibration.fingerprint, wanted
            if not is_known:
                own = wanted.drawn_as(fitted)
                own = replace(own, model=model or own.model)
            elif wanted.kernel == "llm" and not wanted.comparer:  # the LLM compared nothing
                own = replace(wanted, comparer=fitted.comparer)
            return fitted.differs(own)

        nearest, different = min(((made, differs(made)) for made in candidates), key=lambda of: len(of[1]))
        if not different:
            return nearest, []
        progress = self.progress if chosen is None and command.is_drawn else ""
        return None, [mismatch(nearest, different, progress)]

    def serving(
        self,
        command: ScoreCommand,
        chosen: Calibration | None,
        generation: Generation,
        made_by: EmbedderIdentity,
        evidence: Evidence | None,
    ) -> tuple[ServedCalibration | None, list[ScoreWarning]]:
        """Return the calibration to apply to these answers, and warnings.

        A calibration by evidence applies its plain parameters to answers without log-probabilities.
        """
        count = len(generation.draws)
        fits, warnings = self.fitting(command, chosen, generation, made_by)
        if fits is not None:
            applied = applied_to(fits, count, evidence)
            if applied is not None:
                lacking = count and fits.evidence and applied.evidence is None
                about = [NO_EVIDENCE] if lacking else []
                selector = fits.selectors.get(count)
                if selector is not None and selector.is_bundled:
                    about.append(WITHOUT_SAMPLES)
                else:
                    about += {"bundled": [BUNDLED], "both": [FEW_OWN]}.get(fits.origin, [])
                return applied, about
            warnings = [mismatch(fits, ["num_samples"])]
        return None, warnings

    def serves_one(self, command: ScoreCommand, chosen: Calibration | None) -> bool:
        """Return True if a calibration by evidence may apply to a single answer to the request."""
        fits, _ = self.fitting(command, chosen)
        return fits is not None and bool(fits.evidence) and command.num_samples > 0

    def recommended(self, command: ScoreCommand, chosen: Calibration | None) -> int | None:
        """Return the number of samples that the applicable calibration recommends, or None.

        chosen: the calibration that the command names by id. Raises EmbedderUnavailable.
        """
        if not command.is_drawn or (chosen is None and command.calibration != "active"):
            return None
        calibration, _ = self.fitting(command, chosen)
        return None if calibration is None else calibration.recommended

    def compares_questions(self, command: ScoreCommand, chosen: Calibration | None) -> bool:
        """Return True if a calibration may compare the question with its rows' questions.

        It may be the named one or an active one (which claims use beside a named one of answers). Which is
        applied is known only after the answers.
        """
        if command.calibration == "none" or command.prompt.question is None:
            return False
        candidates = [*([chosen] if chosen else []), *self._calibrations.any_active()]
        return any(
            calibration.reference is not None and len(calibration.reference.questions)
            for calibration in candidates
        )


def p_value(
    applied: ServedCalibration | None, question: NDArray[np.float32] | None, seen: Observation
) -> tuple[float | None, list[ScoreWarning]]:
    """Return the p-value of a prompt under the calibration's rows (method, section 12), and warnings.

    question: its vector (d,), None if unknown. Without samples, the length of the judged text is used. The
    p-value is None without a calibration that keeps the prompts of its rows.
    """
    reference = None if applied is None else applied.calibration.reference
    if reference is None:
        return None, []
    num_words = np.array([len(words(draw.text)) for draw in seen.draws], dtype=np.int_)
    found = reference.p_value(question, num_words)
    length = num_words.mean() if seen.draws else len(words(seen.judged))
    if found is not None and found < MAX_OOD_P_VALUE:
        message = (
            "The question or the length of its answers is unlike the calibration's rows "
            f"(p = {found:.2g}). The calibration is valid only for questions like its rows."
        )
        return found, [warning("out_of_distribution", message)]
    return found, _out_of_range(
        length, reference, "The drawn answers have on average" if seen.draws else "The text has"
    )


def _out_of_range(length: float, reference: ConformalReference, has: str) -> list[ScoreWarning]:
    """Return a warning if the length in words is outside the range of the calibration's rows.

    has: the beginning of the sentence that names the length.
    """
    least, most = reference.length_range
    if least <= length <= most:
        return []
    message = (
        f"{has} {length:.3g} words. The calibration's rows have answers of {least} to {most} words, "
        "and the calibration is valid only for similar answers."
    )
    return [warning("out_of_distribution", message)]
