"""Health: what device plug-ins, agents on nodes, ClusterD and switches say of nodes and chips, as facts.

Watches ConfigMaps, takes reports that agents send over NATS, follows node and pod facts. Writes ``fact.health.<domain>``.
Owns the rule of staleness and the last good word of each source. Restarts by comparing with the latest health facts.
"""
