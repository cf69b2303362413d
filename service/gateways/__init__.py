"""Scores for gateways and routers: verdicts on a text, guardrails, kept scores."""
