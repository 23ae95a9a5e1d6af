"""Berth: the library. Pure core, formats, doors to the outside, and the command line."""
