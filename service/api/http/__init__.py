"""What routes have in common: keys, bodies, uploads, errors, headers."""
