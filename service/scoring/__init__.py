"""Scores: sampling, embedding, calibration, judgement, storage and routes."""
