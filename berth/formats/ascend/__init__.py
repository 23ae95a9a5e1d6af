"""Formats of the Ascend software: device reports, annotations, rank tables, leaf switch tables."""
