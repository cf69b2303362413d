"""Developer tools: the contract, the settings table and deployment checks."""
