"""Calibration reports: arrays to one self-contained HTML page."""
