"""Calibrations, their data and reports."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from typing import Any

from eigencal._base_client import (
    JSON,
    AsyncAPIClient,
    Call,
    SyncAPIClient,
    format_path,
    json_parser,
    parse_nothing,
    parse_text,
)
from eigencal._exceptions import UnexpectedResponseError
from eigencal._models import Activation, Calibration

_parse_one = json_parser(Calibration)
_parse_all = json_parser(tuple[Calibration, ...])
_parse_report = json_parser(dict[str, Any])

_ALL: Call[tuple[Calibration, ...]] = Call("GET", "/calibrations", _parse_all)
_ACTIVE: Call[tuple[Calibration, ...]] = Call("GET", "/calibrations/active", _parse_all)
_ACTIVATIONS: Call[tuple[Activation, ...]] = Call(
    "GET", "/calibrations/activations", json_parser(tuple[Activation, ...])
)


def _calibration_call(calibration_id: str) -> Call[Calibration]:
    return Call("GET", format_path("/calibrations/{id}", id=calibration_id), _parse_one)


def _activate_call(calibration_id: str) -> Call[Calibration]:
    return Call("POST", format_path("/calibrations/{id}/activate", id=calibration_id), _parse_one)


def _data_call(method: str, calibration_id: str) -> Call[None]:
    return Call(method, format_path("/calibrations/{id}/data", id=calibration_id), parse_nothing)


# The same path answers with either; a browser's default would be the page.
def _report_call(report_id: str) -> Call[dict[str, Any]]:
    return Call("GET", _report_path(report_id), _parse_report, headers={"Accept": JSON})


def _page_call(report_id: str) -> Call[str]:
    return Call("GET", _report_path(report_id), parse_text, headers={"Accept": "text/html"})


def _report_path(report_id: str) -> str:
    of = "evaluations" if str(report_id).startswith("job_") else "calibrations"
    return format_path(f"/{of}/{{id}}/report", id=report_id)


def _parse_row(line: bytes) -> dict[str, Any]:
    """Return the row that a line of the data tells. Raises UnexpectedResponseError."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise UnexpectedResponseError("A row of the data of a calibration is not as the contract has it.")
    return row


class Calibrations(SyncAPIClient):
    """Calls about calibrations and reports; they need the admin key, if one is set."""

    def calibrations(self, *, timeout_s: float | None = None) -> tuple[Calibration, ...]:
        """Return all calibrations, latest first."""
        return self._send(_ALL, timeout_s)

    def active_calibrations(self, *, timeout_s: float | None = None) -> tuple[Calibration, ...]:
        """Return the active calibrations: one for each set-up that has one."""
        return self._send(_ACTIVE, timeout_s)

    def activations(self, *, timeout_s: float | None = None) -> tuple[Activation, ...]:
        """Return every activation of a calibration, newest first: what was active when, by whom, why."""
        return self._send(_ACTIVATIONS, timeout_s)

    def calibration(self, calibration_id: str, *, timeout_s: float | None = None) -> Calibration:
        """Return a calibration. Raises NotFoundError."""
        return self._send(_calibration_call(calibration_id), timeout_s)

    def activate(self, calibration_id: str, *, timeout_s: float | None = None) -> Calibration:
        """Serve requests of its set-up with this calibration from now on. Raises NotFoundError."""
        return self._send(_activate_call(calibration_id), timeout_s)

    def report(self, report_id: str, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Return the report of a calibration, or of an evaluation by its job's id. Raises NotFoundError."""
        return self._send(_report_call(report_id), timeout_s)

    def report_page(self, report_id: str, *, timeout_s: float | None = None) -> str:
        """Return the report as a page: HTML, plots included. Raises NotFoundError."""
        return self._send(_page_call(report_id), timeout_s)

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
        call, silence_s = _data_call("GET", calibration_id), self._limit_s(timeout_s)
        with closing(self._lines(call, silence_s)) as lines:
            for line in lines:
                if line:
                    yield _parse_row(line)

    def delete_data(self, calibration_id: str, *, timeout_s: float | None = None) -> None:
        """Delete the rows of a calibration for good; calibration and report stay. Raises NotFoundError."""
        self._send(_data_call("DELETE", calibration_id), timeout_s)


class AsyncCalibrations(AsyncAPIClient):
    """Calls about calibrations and reports; they need the admin key, if one is set."""

    async def calibrations(self, *, timeout_s: float | None = None) -> tuple[Calibration, ...]:
        """Do as `Client.calibrations` does, awaited."""
        return await self._send(_ALL, timeout_s)

    async def active_calibrations(self, *, timeout_s: float | None = None) -> tuple[Calibration, ...]:
        """Do as `Client.active_calibrations` does, awaited."""
        return await self._send(_ACTIVE, timeout_s)

    async def activations(self, *, timeout_s: float | None = None) -> tuple[Activation, ...]:
        """Do as `Client.activations` does, awaited."""
        return await self._send(_ACTIVATIONS, timeout_s)

    async def calibration(self, calibration_id: str, *, timeout_s: float | None = None) -> Calibration:
        """Do as `Client.calibration` does, awaited."""
        return await self._send(_calibration_call(calibration_id), timeout_s)

    async def activate(self, calibration_id: str, *, timeout_s: float | None = None) -> Calibration:
        """Do as `Client.activate` does, awaited."""
        return await self._send(_activate_call(calibration_id), timeout_s)

    async def report(self, report_id: str, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Do as `Client.report` does, awaited."""
        return await self._send(_report_call(report_id), timeout_s)

    async def report_page(self, report_id: str, *, timeout_s: float | None = None) -> str:
        """Do as `Client.report_page` does, awaited."""
        return await self._send(_page_call(report_id), timeout_s)

    async def data(
        self, calibration_id: str, *, timeout_s: float | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Do as `Client.data` does, awaited."""
        call, silence_s = _data_call("GET", calibration_id), self._limit_s(timeout_s)
        async with aclosing(self._lines(call, silence_s)) as lines:
            async for line in lines:
                if line:
                    yield _parse_row(line)

    async def delete_data(self, calibration_id: str, *, timeout_s: float | None = None) -> None:
        """Do as `Client.delete_data` does, awaited."""
        await self._send(_data_call("DELETE", calibration_id), timeout_s)
