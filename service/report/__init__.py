"""Calibration reports: arrays to one self-contained HTML page."""

from service.report.page import render

__all__ = ["render"]
