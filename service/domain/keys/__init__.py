"""Keys that operators make and revoke while the service runs, beside the two of the settings."""
