"""The experiments of a study, a file per question."""
