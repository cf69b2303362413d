"""The route for vLLM's semantic router: a verdict on an answer."""
