"""The demonstration of `make run`."""

from service.demo.tour import BackgroundService, DemoError, run

__all__ = ["BackgroundService", "DemoError", "run"]
