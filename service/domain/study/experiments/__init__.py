"""One file per experiment of an evaluation."""
