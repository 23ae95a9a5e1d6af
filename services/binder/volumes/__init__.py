"""Volumes of gangs: claims that have to be bound before the pods are."""
