"""Limits of switch affinity, for plans and explanations."""

from typing import Final

COLUMNS_MAX: Final = 128
"""With more places per leaf than this the reference forms no logical switches."""
