"""Inventory: what the cluster has, what is used, and which pods are to be placed.

Follows nodes, pods, PodGroups and the ConfigMap of leaf switches on the API server, and the verdicts on jobs on the
bus. Writes node, topology, pod and member facts, job requests, and the phases of PodGroups, which it owns. Restarts
from the
facts that it wrote: what has changed meanwhile is published, nothing is published twice.
"""
