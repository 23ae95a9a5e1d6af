"""Binder: makes placements real.

Follows the ledger and its own outcome facts. Writes bindings and evictions to the cluster, and outcome facts. Owns the
retries against the cluster. Restarts by folding the ledger: what has no outcome is bound again, which is harmless.
"""
