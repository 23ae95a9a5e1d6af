"""Descriptions of whole clusters: topology files and short texts."""
