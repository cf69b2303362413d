"""The drop-in: OpenAI's routes, their shapes and errors."""
