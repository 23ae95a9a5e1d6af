"""Inventory: publishes the state of the cluster and turns pods into job requests.

It follows nodes, pods, PodGroups and the ConfigMap of leaf switches on the API server, and verdicts on jobs on the bus.
It publishes node, topology, pod and member facts and job requests, and it owns the phases of PodGroups. After a restart
it reads the facts that it published: it publishes what changed since, and nothing twice.
"""
