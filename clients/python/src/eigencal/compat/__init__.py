"""Surfaces of other libraries, for programs that move here."""
