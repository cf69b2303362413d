"""Which calibration serves a request: the one that fits, else the default, else none."""

from collections.abc import Mapping, Sequence
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
from service.calibration.default import DefaultCalibration
from service.calibration.store import SqlCalibrations
from service.claims.comparison import Compare, compared_by
from service.embedding.port import LLM, Embedder, EmbedderIdentity
from service.errors import EmbedderUnavailable, NotFound
from service.llm.port import Draw, Generation, LanguageModel
from service.scoring.score import CalibrationUsed, Evidence, ScoreCommand, ScoreWarning, warning
from service.spectral.conformal import ConformalReference
from service.spectral.evidence import EvidenceMap
from service.spectral.spectrum import DepolarizedMap, TemperatureMap
from service.spectral.text_scores import words

NO_CALIBRATION = warning(
    "calibration_missing",
    "No calibration is active: values are raw, and nothing tells how likely an answer is right.",
)
NO_EVIDENCE = warning(
    "evidence_missing",
    "The calibration uses log-probabilities, and these answers came without: they are served by its plain "
    "parameters.",
)
BY_DEFAULT = warning(
    "default_calibration",
    "Served by the default calibration: fitted on short answers of a small LLM to trivia questions, too "
    "careful where questions are easy. Label 100 questions of your own, and POST /calibrate makes a "
    "calibration of them.",
)
RANKED_BY_DEFAULT = warning(
    "default_calibration",
    "Judged by the default calibration, fitted on short answers of a small LLM to trivia questions. Label "
    "100 questions of your own, and POST /calibrate makes a calibration of them.",
)
# Below it a prompt is called unlike the rows: at most that share of those that are like them, too.
MAX_OOD_P_VALUE = 0.02


@dataclass(frozen=True, slots=True)
class Applied:
    """The calibration that a score used, with the map for its number of answers.

    map: None where no answer was drawn. evidence: the one that `map` was made by; None where the answers have
    no log-probabilities, or the calibration needs none. default: where it stands in for one of this very
    set-up, whose it is.
    """

    calibration: Calibration
    map: DepolarizedMap | TemperatureMap | None
    evidence: EvidenceMap | None = None
    default: DefaultCalibration | None = None

    @property
    def method(self) -> Method:
        """Return how the score was served, which without log-probabilities is not by evidence."""
        if self.map is None:
            return self.calibration.method
        if self.evidence is not None:
            return "evidence"
        return "depolarized" if isinstance(self.map, DepolarizedMap) else "temperature"

    @property
    def used(self) -> CalibrationUsed:
        """Return what a score tells of it."""
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
            origin="own" if self.default is None else "default",
            **by_evidence,
        )


def applied_to(
    calibration: Calibration, num_samples: int, evidence: Evidence | None = None
) -> Applied | None:
    """Return a calibration at so many answers; None for more than it knows, or one without evidence."""
    if num_samples == 0:
        return Applied(calibration, None)
    given = evidence if calibration.evidence else None
    if num_samples > calibration.num_samples or (num_samples == 1 and given is None):
        return None
    if given is None:
        return Applied(calibration, calibration.map_for(num_samples))
    served = calibration.map_for(num_samples, given.missing_mass)
    return Applied(calibration, served, calibration.evidence[num_samples])


def mismatch(calibration: Calibration, differs: list[str]) -> ScoreWarning:
    """Return the warning of a calibration that does not fit."""
    message = f"Calibration {calibration.id} was fitted with another {', '.join(differs)}: it does not serve."
    return warning("calibration_mismatch", message, tuple(differs))


class CalibrationChoice:
    """Chooses the calibration of a request.

    One that is named is held to the same test as the active ones: it never serves where it does not fit.
    `default`: what serves where none fits; None: raw values do. `compare`: by what answers are compared
    where a request does not say.
    """

    def __init__(
        self,
        llm: LanguageModel,
        embedder: Embedder,
        calibrations: SqlCalibrations,
        default: DefaultCalibration | None,
        compare: Compare = "embeddings",
    ) -> None:
        self._llm = llm
        self._compare = compare
        self._embedder = embedder
        self._calibrations = calibrations
        self._default = default

    async def named(self, choice: str) -> Calibration | None:
        """Return a calibration named by its id, else None. Raises NotFound."""
        if choice in ("active", "none"):
            return None
        calibration = await self._calibrations.get(choice)
        if calibration is None:
            raise NotFound("No calibration has the id given in `calibration`.")
        return calibration

    def is_by_llm(self, command: ScoreCommand) -> bool:
        """Tell whether the LLM is to compare the answers."""
        return self._is_set_up_for_llm(command) and not command.draws_none

    def is_judged_alone(self, command: ScoreCommand) -> bool:
        """Tell whether a text without answers is judged as the LLM would have compared them."""
        return self._is_set_up_for_llm(command) and command.draws_none

    def _is_set_up_for_llm(self, command: ScoreCommand) -> bool:
        return (command.compare or self._compare) == "llm"

    def fingerprint(
        self,
        command: ScoreCommand,
        generation: Generation | None = None,
        made_by: EmbedderIdentity | None = None,
    ) -> Fingerprint:
        """Return what a calibration must have been fitted with to fit this request.

        Without the answers, the model is the one that answered such a request last; without `made_by`, the
        embedder is the present one.
        """
        embedder = made_by or self._embedder.identity
        if made_by is None and self._is_set_up_for_llm(command):
            asked = command.generation
            embedder = compared_by(embedder, "" if asked is None else self._llm.identity(asked).model)
        if command.generation is None:
            return caller_fingerprint(command.source_label, embedder)
        identity = self._llm.identity(command.generation)
        drawn_by = identity.of(generation) if generation else identity
        return service_fingerprint(drawn_by, command.generation.sampling, embedder)

    def fitting(
        self,
        command: ScoreCommand,
        chosen: Calibration | None,
        generation: Generation | None = None,
        made_by: EmbedderIdentity | None = None,
        unit: Unit = "answer",
    ) -> tuple[Calibration | None, list[ScoreWarning]]:
        """Return the calibration that fits, else None and, unless none was wanted, why."""
        every = self._compared(command, chosen, generation, made_by, unit)
        if not every:
            return None, [] if command.calibration == "none" else [NO_CALIBRATION]
        nearest, differs = min(every, key=lambda one: len(one[1]))
        return (None, [mismatch(nearest, differs)]) if differs else (nearest, [])

    def _compared(
        self,
        command: ScoreCommand,
        chosen: Calibration | None,
        generation: Generation | None,
        made_by: EmbedderIdentity | None,
        unit: Unit,
    ) -> list[tuple[Calibration, list[str]]]:
        """Return the calibrations in question, each with the parts in which it differs from the request.

        chosen: one of claims is asked for with the whole answer's, too; one of answers leaves claims the
        active ones. Before the first answer the parts that only answers tell are open.
        """
        if command.calibration == "none":
            return []
        wanted = replace(self.fingerprint(command, generation, made_by), unit=unit)
        is_open = wanted.kernel == LLM and not wanted.comparer  # nobody had to be asked
        if chosen is not None and (unit == "answer" or chosen.fingerprint.unit == "claim"):
            every = [chosen]
        else:
            every = [one for one in self._calibrations.any_active() if one.fingerprint.unit == unit]
        drawn = generation is not None and bool(generation.draws)
        if drawn or command.generation is None or self._llm.identity(command.generation).answered:
            opened = [replace(wanted, comparer=one.fingerprint.comparer) for one in every]
            return [
                (one, one.fingerprint.differs(told if is_open else wanted))
                for one, told in zip(every, opened, strict=True)
            ]
        model = generation.model if generation else ""
        compared = list[tuple[Calibration, list[str]]]()
        for one in every:
            told = wanted.drawn_as(one.fingerprint)
            compared.append((one, one.fingerprint.differs(replace(told, model=model or told.model))))
        return compared

    def serving(
        self,
        command: ScoreCommand,
        chosen: Calibration | None,
        generation: Generation,
        made_by: EmbedderIdentity,
        evidence: Evidence | None,
    ) -> tuple[Applied | None, list[ScoreWarning]]:
        """Return what serves these answers, and what to know about it.

        One by evidence serves answers without log-probabilities by its plain parameters.
        """
        count = len(generation.draws)
        fits, warnings = self.fitting(command, chosen, generation, made_by)
        if fits is not None:
            applied = applied_to(fits, count, evidence)
            if applied is not None:
                lacking = count and fits.evidence and applied.evidence is None
                return applied, [NO_EVIDENCE] if lacking else []
            warnings = [mismatch(fits, ["num_samples"])]
        if self._default is None or command.calibration == "none":
            return None, warnings
        if count and self._default.kernel != made_by.kernel:  # of no answers nothing is compared
            return None, warnings
        applied = applied_to(self._default.under(made_by), count, evidence)
        if applied is None:
            return None, warnings
        differs = [one for one in warnings if one.code == "calibration_mismatch"]
        return replace(applied, default=self._default), [*differs, BY_DEFAULT if count else RANKED_BY_DEFAULT]

    def serves_one(self, command: ScoreCommand, chosen: Calibration | None) -> bool:
        """Tell whether a calibration by evidence may serve a single answer to a request."""
        if command.calibration == "none" or command.num_samples < 1:
            return False
        if self._default is not None and not self.is_by_llm(command):
            return True
        every = self._compared(command, chosen, None, None, "answer")
        return any(one.evidence and not differs for one, differs in every)

    def recommended(self, command: ScoreCommand, chosen: Calibration | None) -> int | None:
        """Return how many answers the calibration recommends that would be applied; None where none does.

        chosen: the calibration that the command names. Raises EmbedderUnavailable.
        """
        if command.generation is None or (chosen is None and command.calibration != "active"):
            return None
        calibration, _ = self.fitting(command, chosen)
        return None if calibration is None else calibration.recommended

    def question(self, command: ScoreCommand, chosen: Calibration | None) -> str | None:
        """Return the text of what is asked, where a calibration that may be applied compares it with others.

        Which one is applied is known only once the answers are.
        """
        if command.calibration == "none":
            return None
        every = [chosen] if chosen else self._calibrations.any_active()
        compared = any(one.reference is not None and len(one.reference.questions) for one in every)
        return command.question if compared or self._default_compares() else None

    def _default_compares(self) -> bool:
        if self._default is None:
            return False
        try:
            return self._default.compares(self._embedder.identity)
        except EmbedderUnavailable:  # not known before it has embedded something
            return True


def ood_p_value(
    applied: Applied | None,
    question: str | None,
    vectors: Mapping[str, NDArray[np.float32]],
    draws: Sequence[Draw],
    candidate: str | None = None,
) -> tuple[float | None, list[ScoreWarning]]:
    """Return how like a calibration's rows a prompt is (method, section 12), and warnings where it is not.

    vectors: (d,) by text, with the question's if it is compared. candidate: its length counts if no answer
    was drawn. None where the calibration, if any, does not know its rows' prompts.
    """
    reference = None if applied is None else applied.calibration.reference
    if reference is None:
        return None, []
    num_words = np.array([len(words(draw.text)) for draw in draws], dtype=np.int_)
    p_value = reference.p_value(None if question is None else vectors[question], num_words)
    length = num_words.mean() if draws else None if candidate is None else len(words(candidate))
    warnings = _out_of_range(length, reference)
    if p_value is not None and p_value < MAX_OOD_P_VALUE:
        message = (
            "The question, or the length of its answers, is unlike the calibration's rows "
            f"(p = {p_value:.2g}). The calibration holds for questions like its rows."
        )
        warnings.insert(0, warning("out_of_distribution", message))
    return p_value, warnings


def _out_of_range(length: float | None, reference: ConformalReference) -> list[ScoreWarning]:
    """Return a warning for a length in words outside the lengths of the calibration's rows. None: unknown."""
    least, most = reference.length_range
    if length is None or least <= length <= most:
        return []
    message = (
        f"The calibration's rows hold answers of {least} to {most} words, and this one has {length:.3g}: "
        "the calibration holds for answers like its rows'."
    )
    return [warning("length_out_of_range", message)]
