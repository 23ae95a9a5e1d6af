"""Leaf switches of a cell: which nodes each has, and in which state it is (free, shared, exclusive)."""
