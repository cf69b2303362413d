"""Durable jobs: what is asked, drawing the answers, the engine, the routes."""
