"""Adapters: the outside world behind the ports of `service.domain.ports`."""
