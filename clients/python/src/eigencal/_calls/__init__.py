"""Every call of the contract, described once: what is sent, how it is read, whether it may be repeated."""
