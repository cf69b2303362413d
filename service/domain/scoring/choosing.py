"""Which calibration fits a request, or why none does."""

from service.domain.calibration import Calibration, CalibrationSource
from service.domain.models import Fingerprint
from service.domain.scoring.model import Applied, ScoreWarning


def choose(
    wanted: Fingerprint, num_samples: int, named: Calibration | None, source: CalibrationSource
) -> tuple[Applied | None, list[ScoreWarning]]:
    """Return the calibration that fits, or None with the warning that says why none does.

    A named one is held to the same test as the active one: it is never applied where it does not fit.
    """
    candidate = named or source.active(wanted.key())
    if candidate is None:
        return None, [_no_fit(wanted, source.any_active())]
    differs = candidate.fingerprint.differs(wanted)
    # There are parameters for as many answers as were drawn for the fit, and fewer.
    if num_samples > candidate.num_samples:
        differs.append("num_samples")
    if differs:
        return None, [_mismatch(candidate, differs)]
    return Applied(candidate, candidate.parameters[num_samples]), []


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
