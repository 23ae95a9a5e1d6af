"""Simulated agents of a node: kubelet, device plug-in, NodeD, ClusterD."""
