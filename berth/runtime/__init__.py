"""Doors to the outside: bus, clock, configuration, logs, life cycle."""
