"""Which calibration fits a request, or why none does; and whether the prompt is like its rows."""

import numpy as np
from numpy.typing import NDArray

from service.domain.calibration import Calibration, CalibrationSource
from service.domain.models import Fingerprint, Generation
from service.domain.scoring.evidence import Evidence
from service.domain.scoring.model import Applied, ScoreWarning
from service.spectral.text_scores import words

NO_EVIDENCE = ScoreWarning(
    "evidence_missing",
    "The calibration uses log-probabilities, and these answers came without: they are served by its plain "
    "parameters.",
)

# Below it a prompt is called unlike the rows: at most that share of those that are like them, too.
MAX_OOD_P_VALUE = 0.02


def choose(
    wanted: Fingerprint,
    num_samples: int,
    named: Calibration | None,
    source: CalibrationSource,
    evidence: Evidence | None = None,
) -> tuple[Applied | None, list[ScoreWarning]]:
    """Return the calibration that fits, or None with the warning that says why none does.

    A named one is held to the same test as the active one: it is never applied where it does not fit. One by
    evidence serves answers without log-probabilities by its plain parameters, and a warning says so.
    """
    candidate = named or source.active(wanted.key())
    if candidate is None:
        return None, [_no_fit(wanted, source.any_active())]
    differs = candidate.fingerprint.differs(wanted)
    told = evidence if candidate.evidence else None
    # There are parameters for as many answers as were drawn for the fit, and fewer; one takes evidence.
    if num_samples > candidate.num_samples or (num_samples == 1 and told is None):
        differs.append("num_samples")
    if differs:
        return None, [_mismatch(candidate, differs)]
    if told is not None:
        served = candidate.map_for(num_samples, told.missing_mass)
        return Applied(candidate, served, candidate.evidence[num_samples]), []
    warnings = [NO_EVIDENCE] if candidate.evidence else []
    return Applied(candidate, candidate.map_for(num_samples)), warnings


def one_may_do(
    wanted: Fingerprint, named: Calibration | None, source: CalibrationSource, *, answered: bool
) -> bool:
    """Tell whether a calibration by evidence may serve a single answer to a request.

    answered: whether the LLM has told what `wanted` holds; else the parts that only answers tell are open,
    for the first answer after a start could never be drawn.
    """
    every = [named] if named else source.any_active()
    prints = [one.fingerprint for one in every if one.evidence]
    return any(not one.differs(wanted if answered else wanted.drawn_as(one)) for one in prints)


def ood_p_value(
    applied: Applied | None, question: NDArray[np.float32] | None, generation: Generation
) -> float | None:
    """Return the p-value of a prompt that is like the rows of the calibration applied (method, section 10).

    question: its vector (d,), by the embedder of the calibration; None for a prompt without text.
    """
    reference = None if applied is None else applied.calibration.reference
    if reference is None:
        return None
    return reference.p_value(question, np.array([len(words(draw.text)) for draw in generation.draws]))


def out_of_distribution(p_value: float | None) -> list[ScoreWarning]:
    """Return a warning when a prompt is unlike the rows of the calibration."""
    if p_value is None or p_value >= MAX_OOD_P_VALUE:
        return []
    message = (
        f"The question, or the length of its answers, is unlike the calibration's rows (p = {p_value:.2g}): "
        "what the calibration says is said of questions like those."
    )
    return [ScoreWarning("out_of_distribution", message)]


def _no_fit(wanted: Fingerprint, active: list[Calibration]) -> ScoreWarning:
    if not active:
        return ScoreWarning("calibration_missing", "No calibration is active: raw values are served.")
    nearest = min(active, key=lambda calibration: len(calibration.fingerprint.differs(wanted)))
    return _mismatch(nearest, nearest.fingerprint.differs(wanted))


def _mismatch(calibration: Calibration, differs: list[str]) -> ScoreWarning:
    message = (
        f"Calibration {calibration.id} was fitted with another {', '.join(differs)}: raw values are served."
    )
    return ScoreWarning("calibration_mismatch", message, tuple(differs))
