"""`make run`: what it starts, does and shows."""

from service.demo.tour import BackgroundService, DemoError, run

__all__ = ["BackgroundService", "DemoError", "run"]
