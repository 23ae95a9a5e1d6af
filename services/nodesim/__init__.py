"""Nodesim: a simulated cluster, read from a topology file.

On an API server it plays the nodes, their agents and, if asked to, the controllers of jobs: follows pods, reports and
jobs, writes what kubelet, device plug-in, NodeD, ClusterD and the controllers would. Restarts from what the API shows.

Without one it follows nothing, writes node, health and pod facts in place of ``inventory`` and ``health``, and answers
the binder. Owns the simulated pods. Restarts from the pod facts that it wrote.
"""
