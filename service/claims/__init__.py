"""What an answer claims: its sentences and their facts, or the fields of an answer in JSON."""
