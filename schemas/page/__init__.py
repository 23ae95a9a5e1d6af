"""Shapes of the page: the picture of a cell, its changes, and recordings of both, as JSON."""
