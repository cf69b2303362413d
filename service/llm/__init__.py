"""Where answers come from: an OpenAI-compatible server, or the model in this process."""
