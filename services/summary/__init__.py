"""Summary: job summaries for the fabric controller, as ConfigMaps and events, and a map of leaf switches for operators.

It follows pods, PodGroups, nodes and its own ConfigMaps on the API server. It writes ``job-summary-<job>`` ConfigMaps
and publishes the same records on the bus. It restarts from the existing ConfigMaps. Under policy 2.0 of switch affinity
it also follows the ledger and the facts of switches, and writes ``tor-share-cm``.
"""
