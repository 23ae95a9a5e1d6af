"""Nodes and leaf switches as facts."""
