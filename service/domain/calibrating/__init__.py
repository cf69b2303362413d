"""The use case of POST /calibrate: embed, fit, decide, store."""
