"""Summary: what the fabric controller reads of each job, as ConfigMaps and as events.

Follows pods, PodGroups, nodes and the ConfigMaps themselves on the API server. Writes ``job-summary-<job>`` ConfigMaps and
the same records on the bus. Restarts from the ConfigMaps that it finds.
"""
