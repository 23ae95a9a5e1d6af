"""Adapters of a process: bus, Kubernetes, clock, configuration, logs, metrics, life cycle."""
