"""Binder: binds placed pods and evicts them.

It follows the ledger and its own outcome facts. It writes bindings and evictions to the cluster, and publishes outcome
facts. It owns the retries against the cluster. After a restart it folds the ledger and binds attempts without an
outcome again, which is harmless.
"""
