"""Simulated job controllers: Ascend operator, Volcano, PodGroups."""
