"""Servers on this machine for tests, demos and single-machine use: nats-server, kube-apiserver."""
