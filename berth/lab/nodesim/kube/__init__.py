"""The simulated cluster on a Kubernetes API server."""
