"""Traces of jobs from public sources and CSV files."""
