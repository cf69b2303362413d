"""Where everything is wired: the settings are read here, and what they ask for is put together."""

from service.app.factory import create_app

__all__ = ["create_app"]
