"""What an answer claims: its sentences, or the fields of an answer in JSON. Not served yet."""
