"""Where everything is wired: the settings are read here, and the parts that they ask for put together."""

from service.app.factory import create_app

__all__ = ["create_app"]
