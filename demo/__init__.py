"""The demonstration of `make run`: a small LLM server, bundled questions, and three calls of the service."""
