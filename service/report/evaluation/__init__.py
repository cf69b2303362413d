"""The page, the figures and the tables of an evaluation."""
