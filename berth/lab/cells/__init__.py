"""Cells on this machine: NATS, a simulated cluster and the services as child processes, with or without Kubernetes."""
