"""Benches on a real API server."""
