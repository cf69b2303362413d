"""What both clients share of sending: set-up, attempts, uploads, batches. No sockets here."""
