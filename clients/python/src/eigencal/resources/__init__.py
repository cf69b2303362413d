"""The calls of the service, by what they are about: sync and async side by side."""
