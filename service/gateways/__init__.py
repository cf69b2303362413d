"""Routes for gateways and routers: verdicts on a text, and guardrails."""
