"""Durable jobs: options, drawing of answers, engine, routes."""
