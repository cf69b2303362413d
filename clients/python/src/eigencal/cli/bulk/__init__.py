"""Scoring a file of questions: each has one line of the results, however often the command is killed and run again."""
