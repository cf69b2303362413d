"""The domain: what a score is and what it needs. Imports `service.spectral` only."""
