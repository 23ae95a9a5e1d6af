"""Volcano PodGroups: admission and status."""
