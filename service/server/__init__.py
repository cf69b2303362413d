"""What stands between the sockets and the application: addresses, and connections with their bounds."""
