"""Recordings of cells as files, and their anonymisation."""
