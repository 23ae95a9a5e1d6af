"""Commands about the cluster: nodes, leaf switches, SuperPoDs, simulated faults."""
