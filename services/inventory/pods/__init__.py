"""Bound pods as facts."""
