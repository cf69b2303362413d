"""Durable jobs: an engine that starts them, a lease under which they run, watchers who are told."""
