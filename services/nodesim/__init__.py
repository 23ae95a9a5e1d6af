"""Nodesim: a simulated cluster, read from a topology file.

Follows nothing. Writes node, health and pod facts in place of ``inventory`` and ``health``, and answers the binder.
Owns the simulated pods. Restarts from the pod facts that it wrote.
"""
