"""Reports: numbers to one self-contained HTML page."""

from collections.abc import Mapping
from typing import Any, cast

from service.domain.study.model import Results
from service.domain.study.report_model import Report
from service.report import calibration_page

__all__ = ["render"]


def render(report: Mapping[str, Any] | Report) -> str:
    """Return the page of a calibration's report, or of an evaluation's results. Takes about a second."""
    if "experiments" in report:
        from service.report.evaluation.page import render_evaluation

        return render_evaluation(cast("Results", report))
    return calibration_page.render(cast("Report", report))
