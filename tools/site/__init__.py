"""Generated parts of the documentation's site: pages of the contract, navigation and figures."""
