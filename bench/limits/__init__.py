"""Limits: bare programs of at most 40 lines that do the least which a bench's work could be."""
