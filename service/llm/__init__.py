"""The LLM: an OpenAI-compatible server or the model in this process."""
