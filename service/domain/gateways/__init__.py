"""What gateways and routers ask of scores, in the words of their own protocols."""
