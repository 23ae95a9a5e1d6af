"""Chaos on real components: processes, servers and networks that break at moments that a seed decides."""
