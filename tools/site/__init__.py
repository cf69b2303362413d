"""What makes the documentation's site beside docs/: pages from the contract, navigation, figures."""
