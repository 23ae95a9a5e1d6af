"""Scheduling: the queue and its policies, reservations, backfill, and the scheduler that drives them."""
