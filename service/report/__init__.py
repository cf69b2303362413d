"""Reports: numbers to one self-contained HTML page."""

from collections.abc import Mapping
from typing import Any, cast

from service.report import page as calibration_page
from service.report.model import Report, Results

__all__ = ["render"]


def render(report: Mapping[str, Any] | Report) -> str:
    """Return the page of a calibration's report, or of an evaluation's results. Takes about a second."""
    if "experiments" in report:
        from service.evaluation.page import render_evaluation

        return render_evaluation(cast("Results", report))
    return calibration_page.render(cast("Report", report))
