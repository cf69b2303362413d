"""Reports of calibrations: numbers, and a self-contained HTML page."""
