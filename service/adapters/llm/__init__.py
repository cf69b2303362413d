"""A language model behind an OpenAI-compatible server, and what is put around a prompt."""
