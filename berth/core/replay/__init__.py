"""Replay of recorded histories: decisions made again and compared record by record."""
