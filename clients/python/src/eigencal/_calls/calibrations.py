"""Calls about calibrations and reports."""

import json

from eigencal._calls.call import Call, nothing, path, reader, text
from eigencal._errors import UnexpectedAnswer
from eigencal._models.calibrations import Activation, Calibration
from eigencal._models.report import Report
from eigencal._models.requests import Row

_ONE = reader(Calibration)
_ALL = reader(tuple[Calibration, ...])
_REPORT = reader(Report)
_HISTORY = reader(tuple[Activation, ...])
# The same path answers with either; a browser's default would be the page.
_PAGE = {"Accept": "text/html"}
_JSON = {"Accept": "application/json"}


def calibrations() -> Call[tuple[Calibration, ...]]:
    """GET /calibrations."""
    return Call("GET", "/calibrations", _ALL, headers=_JSON)


def active_calibrations() -> Call[tuple[Calibration, ...]]:
    """GET /calibrations/active."""
    return Call("GET", "/calibrations/active", _ALL)


def activations() -> Call[tuple[Activation, ...]]:
    """GET /calibrations/activations."""
    return Call("GET", "/calibrations/activations", _HISTORY)


def calibration(calibration_id: str) -> Call[Calibration]:
    """GET /calibrations/{calibration_id}."""
    return Call("GET", path("/calibrations/{id}", id=calibration_id), _ONE)


def activate(calibration_id: str) -> Call[Calibration]:
    """POST /calibrations/{calibration_id}/activate."""
    return Call("POST", path("/calibrations/{id}/activate", id=calibration_id), _ONE)


def data(calibration_id: str) -> Call[str]:
    """GET /calibrations/{calibration_id}/data: a stream."""
    return Call("GET", path("/calibrations/{id}/data", id=calibration_id), text)


def row_of(line: bytes) -> Row:
    """Return the row that a line of the data tells. Raises UnexpectedAnswer."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise UnexpectedAnswer("A row of the data of a calibration is not as the contract has it.")
    return row


def delete_data(calibration_id: str) -> Call[None]:
    """DELETE /calibrations/{calibration_id}/data."""
    return Call("DELETE", path("/calibrations/{id}/data", id=calibration_id), nothing)


def report(calibration_id: str) -> Call[Report]:
    """GET /calibrations/{calibration_id}/report as JSON."""
    return Call("GET", path("/calibrations/{id}/report", id=calibration_id), _REPORT, headers=_JSON)


def report_page(calibration_id: str) -> Call[str]:
    """GET /calibrations/{calibration_id}/report as a page."""
    return Call("GET", path("/calibrations/{id}/report", id=calibration_id), text, headers=_PAGE)


def evaluation_report(job_id: str) -> Call[Report]:
    """GET /evaluations/{job_id}/report as JSON."""
    return Call("GET", path("/evaluations/{id}/report", id=job_id), _REPORT, headers=_JSON)


def evaluation_page(job_id: str) -> Call[str]:
    """GET /evaluations/{job_id}/report as a page."""
    return Call("GET", path("/evaluations/{id}/report", id=job_id), text, headers=_PAGE)
