"""Limits of switch affinity, for those who plan and those who explain."""

from typing import Final

COLUMNS_MAX: Final = 128
"""With more places per leaf than this the reference forms no logical switches."""
