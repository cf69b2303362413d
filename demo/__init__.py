"""The demonstration of `make run`: a small LLM server, bundled questions, and a tour of the service."""
