"""Calibrations: labelled rows, the fit of a map, promotion, history, their routes."""
