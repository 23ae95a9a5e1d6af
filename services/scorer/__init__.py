"""Scorer: one shard of the cluster's nodes, which answers score requests with small offers.

Follows facts and the ledger. Writes offers only. Owns the columnar state of the domains of its shard. Restarts from
snapshot and tail; while it is unavailable its nodes are not used, and refusals state that.
"""
