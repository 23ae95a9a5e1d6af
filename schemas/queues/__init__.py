"""Queues: how a cell is divided among those that share it."""
