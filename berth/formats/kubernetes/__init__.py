"""Objects of the Kubernetes API: pods, nodes, events, owners."""
