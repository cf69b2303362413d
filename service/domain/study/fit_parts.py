"""A calibration and the fits that it was chosen from, in the shape of its report."""

from service.domain.calibrating.evidence import EvidenceFound
from service.domain.calibrating.fitting import Fitted
from service.domain.calibration import Calibration
from service.domain.study.model import estimate
from service.domain.study.report_model import CalibrationPart, Estimate, EvidenceAt, FitPart, ParametersAt
from service.spectral.evidence_fit import EvidenceFit
from service.spectral.fit import Bootstrap, DepolarizedFit, Interval, TemperatureFit
from service.spectral.fit import Method as PlainMethod


def calibration_part(calibration: Calibration) -> CalibrationPart:
    """Return the calibration itself, with its headline parameters."""
    headline, table = calibration.headline(), evidence_table(calibration)
    part: CalibrationPart = {
        "id": calibration.id,
        "name": calibration.name,
        "created_at": calibration.created_at.isoformat(),
        "method": calibration.method,
        "temperature": headline.temperature,
        "depolarization": None if calibration.method == "temperature" else headline.depolarization,
        "eps": calibration.eps,
        "num_samples": calibration.num_samples,
        "fingerprint": dict(calibration.fingerprint.shown()),
    }
    return {**part, "evidence": table[-1]} if table else part


def evidence_table(calibration: Calibration) -> list[EvidenceAt]:
    """Return the evidence map of every number of answers; nothing for other methods."""
    return [
        {
            "num_samples": m,
            "temperature": found.temperature,
            "evidence_intercept": found.intercept,
            "evidence_slope": found.slope,
        }
        for m, found in sorted(calibration.evidence.items())
    ]


def parameters_part(calibration: Calibration) -> list[ParametersAt]:
    """Return the parameters of every number of answers that need no log-probabilities."""
    depolarized = calibration.method != "temperature"
    return [
        {
            "num_samples": m,
            "temperature": p.temperature,
            "depolarization": p.depolarization if depolarized else None,
        }
        for m, p in sorted(calibration.parameters.items())
    ]


def chosen_fit(fitted: Fitted) -> TemperatureFit | DepolarizedFit | EvidenceFit:
    """Return the fit of the map that was chosen."""
    if fitted.method != "evidence":
        return fitted.fits[fitted.method]
    assert fitted.evidence is not None
    return fitted.evidence.fit


def fit_parts(fitted: Fitted) -> dict[str, FitPart]:
    """Return every map as fitted, by name, with its intervals and its cross-validated risk."""
    parts: dict[str, FitPart] = {method: _fit(fitted, method) for method in fitted.fits}
    if fitted.evidence is not None:
        parts["evidence"] = _evidence_fit(fitted.evidence)
    return parts


def _evidence_fit(evidence: EvidenceFound) -> FitPart:
    found, spread = evidence.fit, evidence.bootstrap
    return {
        "temperature": _estimate(found.map.temperature, spread.temperature),
        "depolarization": None,
        "intercept": _estimate(found.map.intercept, spread.intercept),
        "slope": _estimate(found.map.slope, spread.slope),
        "risk": found.risk,
        "cv_risk": float(evidence.risks["evidence"].mean()),
        "mean_entropy": found.mean_entropy,
        "at_bound": list(found.at_bound),
        "stationarity_gap": found.stationarity_gap,
    }


def _estimate(value: float, spread: Interval) -> Estimate:
    return estimate(value, spread.low, spread.high)


def _fit(fitted: Fitted, method: PlainMethod) -> FitPart:
    found = fitted.fits[method]
    spread = fitted.bootstraps[method]
    return {
        "temperature": _estimate(found.map.temperature, spread.temperature),
        "depolarization": _depolarization(found, spread),
        "risk": found.risk,
        "cv_risk": float(fitted.held_out.risks[method].mean()),
        "mean_entropy": found.mean_entropy,
        "at_bound": list(found.at_bound),
        "stationarity_gap": found.stationarity_gap,
    }


def _depolarization(found: TemperatureFit | DepolarizedFit, spread: Bootstrap) -> Estimate | None:
    if isinstance(found, TemperatureFit) or spread.depolarization is None:
        return None
    return _estimate(found.map.depolarization, spread.depolarization)
