"""Scorer: one shard of the cluster's nodes; it answers score requests with small offers.

It follows facts and the ledger, and writes offers only. It owns the columnar state of the domains of its shard. It
restarts from a snapshot and the messages after it; while it is down, its nodes are not offered, and refusals state so.
"""
