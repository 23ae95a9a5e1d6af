"""Nodesim: a simulated cluster from a topology file.

On an API server it simulates the nodes, their agents and, if configured, the controllers of jobs: it follows pods,
reports and jobs, and writes what kubelet, device plug-in, NodeD, ClusterD and the controllers would write. It restarts
from the objects on the API server.

Without an API server it follows nothing, publishes node, health and pod facts in place of ``inventory`` and ``health``,
and answers the binder. It owns the simulated pods, and restarts from the pod facts that it published.
"""
