"""Affinity by levels of any topology tree."""
