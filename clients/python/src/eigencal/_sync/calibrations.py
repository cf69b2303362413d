"""Calibrations, their data and reports."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, overload

from eigencal._calls import calibrations as calls
from eigencal._models.calibrations import Activation, Calibration
from eigencal._models.report import Report
from eigencal._sync.sending import Sender, lines_of


class Calibrations(Sender):
    """Calls about calibrations and reports; they need the admin key, if one is set."""

    def calibrations(self, *, timeout_s: float | None = None) -> tuple[Calibration, ...]:
        """Return all calibrations, latest first."""
        return self._send(calls.calibrations(), timeout_s)

    def active_calibrations(self, *, timeout_s: float | None = None) -> tuple[Calibration, ...]:
        """Return the calibrations in force: one for each set-up that has one."""
        return self._send(calls.active_calibrations(), timeout_s)

    def activations(self, *, timeout_s: float | None = None) -> tuple[Activation, ...]:
        """Return every activation of a calibration, newest first: what was in force when, by whom, why."""
        return self._send(calls.activations(), timeout_s)

    def calibration(self, calibration_id: str, *, timeout_s: float | None = None) -> Calibration:
        """Return a calibration. Raises NotFound."""
        return self._send(calls.calibration(calibration_id), timeout_s)

    def activate(self, calibration_id: str, *, timeout_s: float | None = None) -> Calibration:
        """Serve requests of its set-up with this calibration from now on. Raises NotFound."""
        return self._send(calls.activate(calibration_id), timeout_s)

    @overload
    def report(self, calibration_id: str, *, path: None = None, timeout_s: float | None = None) -> Report: ...
    @overload
    def report(
        self, calibration_id: str, *, path: str | os.PathLike[str], timeout_s: float | None = None
    ) -> Path: ...
    def report(
        self,
        calibration_id: str,
        *,
        path: str | os.PathLike[str] | None = None,
        timeout_s: float | None = None,
    ) -> Report | Path:
        """Return the report of a calibration; or write it as a page.

        Args:
            calibration_id: Id of the calibration.
            path: Where to write the page (HTML, plots included); left out: nothing is written.
            timeout_s: Seconds that the call may take in all; None: those of the client.

        Returns:
            The report; or the path of the page that was written.

        Raises:
            NotFound: There is no such calibration.
        """
        if path is None:
            return self._send(calls.report(calibration_id), timeout_s)
        return self._saved(calls.report_page(calibration_id), path, timeout_s)

    @overload
    def evaluation_report(
        self, job_id: str, *, path: None = None, timeout_s: float | None = None
    ) -> Report: ...
    @overload
    def evaluation_report(
        self, job_id: str, *, path: str | os.PathLike[str], timeout_s: float | None = None
    ) -> Path: ...
    def evaluation_report(
        self, job_id: str, *, path: str | os.PathLike[str] | None = None, timeout_s: float | None = None
    ) -> Report | Path:
        """Return what an evaluation found; or write it as a page. Arguments and errors as for `report`."""
        if path is None:
            return self._send(calls.evaluation_report(job_id), timeout_s)
        return self._saved(calls.evaluation_page(job_id), path, timeout_s)

    def data(self, calibration_id: str, *, timeout_s: float | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows that a calibration was fitted on, with the answers drawn, as `calibrate` takes them.

        Args:
            calibration_id: Id of the calibration.
            timeout_s: Seconds without a row after which to give up; None: those of the client.

        Raises:
            NotFound: There is no such calibration, or its rows were deleted.
            ConnectionLost: The rows broke off; those that came are whole.
            UnexpectedAnswer: A line is no row.
        """
        silence_s = self._setup.limit_s(timeout_s)
        with self._stream(calls.data(calibration_id), silence_s) as response:
            for line in lines_of(response, silence_s):
                if line:
                    yield calls.row_of(line)

    def delete_data(self, calibration_id: str, *, timeout_s: float | None = None) -> None:
        """Delete the rows of a calibration for good; calibration and report stay. Raises NotFound."""
        self._send(calls.delete_data(calibration_id), timeout_s)
