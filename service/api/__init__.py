"""What all routes share: keys, bodies, errors, headers, health, the contract."""
