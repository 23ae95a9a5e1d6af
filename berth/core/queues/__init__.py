"""Queues: the tree, limits, entitlements, order and admission. Arithmetic over what is given; nothing is stored."""
