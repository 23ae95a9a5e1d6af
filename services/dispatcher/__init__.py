"""Dispatcher: job requests become score requests, offers become one decision.

Follows the intake, facts and the ledger. Writes accepted-job facts, the ledger, status and snapshots. Owns validation,
the order of the queue and the ledger. Restarts from snapshot and tail; a new epoch voids what an older one still sends.
"""
