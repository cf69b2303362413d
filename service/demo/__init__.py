"""`make run`: what it starts, does and shows."""

from service.demo.background import BackgroundService, DemoError
from service.demo.tour import Target, run

__all__ = ["BackgroundService", "DemoError", "Target", "run"]
