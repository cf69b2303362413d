"""The LLM: an OpenAI-compatible server."""
