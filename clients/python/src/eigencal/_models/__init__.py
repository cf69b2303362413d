"""What the service answers, typed and frozen."""
