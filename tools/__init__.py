"""Developer tools: the contract, the settings table, the default calibration and deployment checks."""
