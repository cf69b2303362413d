"""Scoring a file of questions: one line each, however often the command is killed and run again."""
