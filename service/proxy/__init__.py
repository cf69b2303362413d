"""The drop-in: calls in OpenAI's format, passed on and scored."""
