"""Recoveries from faults: what the binder does about pods that leave, and about the jobs that they belong to."""
