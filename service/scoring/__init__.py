"""A score: drawn, embedded, served by a calibration, judged, kept, answered."""
