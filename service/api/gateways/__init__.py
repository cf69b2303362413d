"""Routes for those who come through something else: a gateway, a router, or later with an id."""
