"""Health: what device plug-ins, agents on nodes, ClusterD and switches report of nodes and chips, as facts.

Watches ConfigMaps, takes reports that agents send over NATS, follows node and pod facts. Writes
``fact.health.<domain>``. Owns the rule of staleness and the last good report of each source. Restarts by comparing with
the latest health facts.
"""
