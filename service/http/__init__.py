"""The shared parts of all routes: keys, bodies, errors, headers, health, the contract."""
