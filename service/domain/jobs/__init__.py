"""Jobs: what they are, how they draw their answers, how they give way."""
