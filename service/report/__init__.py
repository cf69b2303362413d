"""A calibration's report: numbers, and one self-contained HTML page."""
