"""Namespaces, claims, volumes and storage classes, as facts."""
