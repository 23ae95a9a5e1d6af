"""Health: reports of device plug-ins, agents on nodes, ClusterD and switches on nodes and chips, as facts.

It watches ConfigMaps, takes reports that agents send over NATS, and follows node and pod facts. It publishes
``fact.health.<domain>``. It owns the staleness rule and the last valid report of each source, with a
newer one that is refused. After a restart it compares with the latest health facts.
"""
