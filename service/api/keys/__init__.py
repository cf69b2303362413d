"""Making, listing and revoking keys."""
