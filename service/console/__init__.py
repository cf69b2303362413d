"""The console: the service's page for people, and its sign-in."""
