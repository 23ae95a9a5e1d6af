"""Mutants: small changes of the product that some test must notice.

Each is a patch in this folder. ``make mutants`` applies one after the other to a copy of the tree and runs the tests
that are said to kill it: one that survives shows that a test no longer sees what it was written for.
"""
