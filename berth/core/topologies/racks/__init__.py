"""Racks: blocks inside racks of a SuperPoD."""
