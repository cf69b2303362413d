"""The drop-in: calls in OpenAI's format, forwarded and scored."""
