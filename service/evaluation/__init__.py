"""The paper's experiments on labelled rows, for the command and for evaluation jobs."""
