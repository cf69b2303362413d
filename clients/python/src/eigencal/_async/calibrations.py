"""Calibrations, their data and reports."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, overload

from eigencal._async.sending import AsyncSender, lines_of
from eigencal._calls import calibrations as calls
from eigencal._models.calibrations import Activation, Calibration
from eigencal._models.report import Report


class AsyncCalibrations(AsyncSender):
    """Calls about calibrations and reports; they need the admin key, if one is set."""

    async def calibrations(self, *, timeout_s: float | None = None) -> tuple[Calibration, ...]:
        """Do as `Client.calibrations` does, awaited."""
        return await self._send(calls.calibrations(), timeout_s)

    async def active_calibrations(self, *, timeout_s: float | None = None) -> tuple[Calibration, ...]:
        """Do as `Client.active_calibrations` does, awaited."""
        return await self._send(calls.active_calibrations(), timeout_s)

    async def activations(self, *, timeout_s: float | None = None) -> tuple[Activation, ...]:
        """Do as `Client.activations` does, awaited."""
        return await self._send(calls.activations(), timeout_s)

    async def calibration(self, calibration_id: str, *, timeout_s: float | None = None) -> Calibration:
        """Do as `Client.calibration` does, awaited."""
        return await self._send(calls.calibration(calibration_id), timeout_s)

    async def activate(self, calibration_id: str, *, timeout_s: float | None = None) -> Calibration:
        """Do as `Client.activate` does, awaited."""
        return await self._send(calls.activate(calibration_id), timeout_s)

    @overload
    async def report(
        self, calibration_id: str, *, path: None = None, timeout_s: float | None = None
    ) -> Report: ...
    @overload
    async def report(
        self, calibration_id: str, *, path: str | os.PathLike[str], timeout_s: float | None = None
    ) -> Path: ...
    async def report(
        self,
        calibration_id: str,
        *,
        path: str | os.PathLike[str] | None = None,
        timeout_s: float | None = None,
    ) -> Report | Path:
        """Do as `Client.report` does, awaited."""
        if path is None:
            return await self._send(calls.report(calibration_id), timeout_s)
        return await self._saved(calls.report_page(calibration_id), path, timeout_s)

    @overload
    async def evaluation_report(
        self, job_id: str, *, path: None = None, timeout_s: float | None = None
    ) -> Report: ...
    @overload
    async def evaluation_report(
        self, job_id: str, *, path: str | os.PathLike[str], timeout_s: float | None = None
    ) -> Path: ...
    async def evaluation_report(
        self, job_id: str, *, path: str | os.PathLike[str] | None = None, timeout_s: float | None = None
    ) -> Report | Path:
        """Do as `Client.evaluation_report` does, awaited."""
        if path is None:
            return await self._send(calls.evaluation_report(job_id), timeout_s)
        return await self._saved(calls.evaluation_page(job_id), path, timeout_s)

    async def data(
        self, calibration_id: str, *, timeout_s: float | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Do as `Client.data` does, awaited."""
        silence_s = self._setup.limit_s(timeout_s)
        async with self._stream(calls.data(calibration_id), silence_s) as response:
            async for line in lines_of(response, silence_s):
                if line:
                    yield calls.row_of(line)

    async def delete_data(self, calibration_id: str, *, timeout_s: float | None = None) -> None:
        """Do as `Client.delete_data` does, awaited."""
        await self._send(calls.delete_data(calibration_id), timeout_s)
