"""Summary: each job for the fabric controller, as ConfigMaps and as events, and the leaf switches for operators.

Follows pods, PodGroups, nodes and the ConfigMaps themselves on the API server. Writes ``job-summary-<job>`` ConfigMaps
and the same records on the bus. Restarts from the ConfigMaps that it finds. Under policy 2.0 of switch affinity it
follows the ledger and the facts of switches too, and writes ``tor-share-cm``.
"""
