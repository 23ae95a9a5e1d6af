"""Queues of a cell, and what is charged to them."""
