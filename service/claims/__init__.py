"""The claims of an answer: its sentences and their facts, or the fields of a JSON answer."""
