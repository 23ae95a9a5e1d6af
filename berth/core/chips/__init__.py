"""Chips inside a node: products, request forms, HCCS affinity, soft share."""
