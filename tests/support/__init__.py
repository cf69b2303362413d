"""Helpers for tests."""
