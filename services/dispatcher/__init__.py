"""Dispatcher: turns job requests into score requests, and offers into one decision per round.

It follows the intake, facts and the ledger. It writes accepted-job facts, the ledger, statuses and snapshots. It owns
validation, the order of the queue and the ledger. It restarts from a snapshot and the records after it; a new epoch
voids late records of the previous leader.
"""
