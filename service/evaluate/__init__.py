"""The command `evaluate`: files in, answers and vectors kept on the way, a folder of results out."""
