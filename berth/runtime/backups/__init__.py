"""Backups of a cell: written, checked, and read back into streams."""
