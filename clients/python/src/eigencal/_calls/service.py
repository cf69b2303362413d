"""Calls about the service itself."""

from eigencal._calls.call import JSON, Call, reader, text
from eigencal._models.service import Health, Ready, Root

_HEALTH = reader(Health)
_READY = reader(Ready)
_ROOT = reader(Root)


def root() -> Call[Root]:
    """GET /."""
    return Call("GET", "/", _ROOT, headers={"Accept": JSON})


def health() -> Call[Health]:
    """GET /health."""
    return Call("GET", "/health", _HEALTH)


def live() -> Call[Health]:
    """GET /healthz."""
    return Call("GET", "/healthz", _HEALTH)


def ready() -> Call[Ready]:
    """GET /readyz."""
    return Call("GET", "/readyz", _READY)


def metrics() -> Call[str]:
    """GET /metrics."""
    return Call("GET", "/metrics", text)
