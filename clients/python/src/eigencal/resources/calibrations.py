"""Calibrations, their data and reports."""

from types import NoneType
from typing import Any

from eigencal._base_client import AsyncAPIClient, Call, SyncAPIClient, awaited, format_path
from eigencal.types import Activation, Calibration


class Calibrations(SyncAPIClient):
    """Calls about calibrations and reports. They need the admin key, if one is set."""

    def calibrations(self, *, timeout_s: float | None = None) -> tuple[Calibration, ...]:
        """Return all calibrations, latest first."""
        return self._send(Call("GET", "/calibrations", tuple[Calibration, ...]), timeout_s)

    def active_calibrations(self, *, timeout_s: float | None = None) -> tuple[Calibration, ...]:
        """Return the active calibrations: at most one per set-up."""
        return self._send(Call("GET", "/calibrations/active", tuple[Calibration, ...]), timeout_s)

    def activations(self, *, timeout_s: float | None = None) -> tuple[Activation, ...]:
        """Return all activations, newest first: calibration, time, caller and reason."""
        return self._send(Call("GET", "/calibrations/activations", tuple[Activation, ...]), timeout_s)

    def calibration(self, calibration_id: str, *, timeout_s: float | None = None) -> Calibration:
        """Return a calibration. Raises NotFoundError."""
        return self._send(
            Call("GET", format_path("/calibrations/{}", calibration_id), Calibration), timeout_s
        )

    def activate(self, calibration_id: str, *, timeout_s: float | None = None) -> Calibration:
        """Use this calibration for all further requests of its set-up. Raises NotFoundError."""
        path = format_path("/calibrations/{}/activate", calibration_id)
        return self._send(Call("POST", path, Calibration), timeout_s)

    def report(self, calibration_id: str, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Return the report of a calibration. Raises NotFoundError."""
        path = format_path("/calibrations/{}/report", calibration_id)
        return self._send(Call("GET", path, dict[str, Any]), timeout_s)

    def report_page(self, calibration_id: str, *, timeout_s: float | None = None) -> str:
        """Return the report as an HTML page with plots. Raises NotFoundError."""
        path = format_path("/calibrations/{}/report", calibration_id)
        return self._send(Call("GET", path, str, headers={"Accept": "text/html"}), timeout_s)

    def data(self, calibration_id: str, *, timeout_s: float | None = None) -> tuple[dict[str, Any], ...]:
        """Return the rows of a calibration with their sampled answers, in the format of `calibrate`.

        Raises NotFoundError if the calibration does not exist or its rows were deleted.
        """
        path = format_path("/calibrations/{}/data", calibration_id)
        return self._send(Call("GET", path, tuple[dict[str, Any], ...], is_json_lines=True), timeout_s)

    def delete_data(self, calibration_id: str, *, timeout_s: float | None = None) -> None:
        """Delete the rows of a calibration permanently; calibration and report stay. Raises NotFoundError."""
        path = format_path("/calibrations/{}/data", calibration_id)
        return self._send(Call("DELETE", path, NoneType), timeout_s)


class AsyncCalibrations(AsyncAPIClient):
    """The asynchronous version of `Calibrations`."""

    calibrations = awaited(Calibrations.calibrations)
    active_calibrations = awaited(Calibrations.active_calibrations)
    activations = awaited(Calibrations.activations)
    calibration = awaited(Calibrations.calibration)
    activate = awaited(Calibrations.activate)
    report = awaited(Calibrations.report)
    report_page = awaited(Calibrations.report_page)
    data = awaited(Calibrations.data)
    delete_data = awaited(Calibrations.delete_data)
