"""Calibrations, their data and reports."""

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from types import NoneType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from eigencal._base_client import AsyncAPIClient, Call, SyncAPIClient, awaited, format_path
from eigencal._exceptions import UnexpectedResponseError
from eigencal._models import Activation, Calibration

_ROW = TypeAdapter(dict[str, Any])


def _report_path(report_id: str) -> str:
    of = "evaluations" if str(report_id).startswith("job_") else "calibrations"
    return format_path(f"/{of}/{{}}/report", report_id)


def _data_call(method: str, calibration_id: str) -> Call[None]:
    return Call(method, format_path("/calibrations/{}/data", calibration_id), NoneType)


def _parse_row(line: bytes) -> dict[str, Any]:
    try:
        return _ROW.validate_json(line)
    except ValidationError:
        raise UnexpectedResponseError("A row of the data is not as the contract has it.") from None


class Calibrations(SyncAPIClient):
    """Calls about calibrations and reports; they need the admin key, if one is set."""

    def calibrations(self, *, timeout_s: float | None = None) -> tuple[Calibration, ...]:
        """Return all calibrations, latest first."""
        return self._send(Call("GET", "/calibrations", tuple[Calibration, ...]), timeout_s)

    def active_calibrations(self, *, timeout_s: float | None = None) -> tuple[Calibration, ...]:
        """Return the active calibrations: one for each set-up that has one."""
        return self._send(Call("GET", "/calibrations/active", tuple[Calibration, ...]), timeout_s)

    def activations(self, *, timeout_s: float | None = None) -> tuple[Activation, ...]:
        """Return every activation of a calibration, newest first: what was active when, by whom, why."""
        return self._send(Call("GET", "/calibrations/activations", tuple[Activation, ...]), timeout_s)

    def calibration(self, calibration_id: str, *, timeout_s: float | None = None) -> Calibration:
        """Return a calibration. Raises NotFoundError."""
        return self._send(
            Call("GET", format_path("/calibrations/{}", calibration_id), Calibration), timeout_s
        )

    def activate(self, calibration_id: str, *, timeout_s: float | None = None) -> Calibration:
        """Serve requests of its set-up with this calibration from now on. Raises NotFoundError."""
        path = format_path("/calibrations/{}/activate", calibration_id)
        return self._send(Call("POST", path, Calibration), timeout_s)

    def report(self, report_id: str, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Return the report of a calibration, or of an evaluation by its job's id. Raises NotFoundError."""
        return self._send(Call("GET", _report_path(report_id), dict[str, Any]), timeout_s)

    def report_page(self, report_id: str, *, timeout_s: float | None = None) -> str:
        """Return the report as a page: HTML, plots included. Raises NotFoundError."""
        return self._send(
            Call("GET", _report_path(report_id), str, headers={"Accept": "text/html"}), timeout_s
        )

    def data(self, calibration_id: str, *, timeout_s: float | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows that a calibration was fitted on, with the answers drawn, as `calibrate` takes them.

        Args:
            calibration_id: Id of the calibration.
            timeout_s: Seconds without a row after which to give up; None: those of the client.

        Raises:
            NotFoundError: There is no such calibration, or its rows were deleted.
            APIConnectionError: The rows broke off; those that came are complete.
            UnexpectedResponseError: A line is no row.
        """
        with closing(self._lines(_data_call("GET", calibration_id), self._limit_s(timeout_s))) as lines:
            yield from map(_parse_row, filter(None, lines))

    def delete_data(self, calibration_id: str, *, timeout_s: float | None = None) -> None:
        """Delete the rows of a calibration for good; calibration and report stay. Raises NotFoundError."""
        return self._send(_data_call("DELETE", calibration_id), timeout_s)


class AsyncCalibrations(AsyncAPIClient):
    """The same, awaited."""

    calibrations = awaited(Calibrations.calibrations)
    active_calibrations = awaited(Calibrations.active_calibrations)
    activations = awaited(Calibrations.activations)
    calibration = awaited(Calibrations.calibration)
    activate = awaited(Calibrations.activate)
    report = awaited(Calibrations.report)
    report_page = awaited(Calibrations.report_page)
    delete_data = awaited(Calibrations.delete_data)

    async def data(
        self, calibration_id: str, *, timeout_s: float | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Do as `Client.data` does."""
        async with aclosing(
            self._lines(_data_call("GET", calibration_id), self._limit_s(timeout_s))
        ) as lines:
            async for line in lines:
                if line:
                    yield _parse_row(line)
