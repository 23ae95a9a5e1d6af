"""Limits of SuperPoDs, for plans and explanations."""

from typing import Final

RACK_NODES: Final = 8
"""Nodes of a rack. A gang with at most this number tries one rack first."""
