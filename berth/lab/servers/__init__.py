"""Local servers for tests, demos and use on a single machine: nats-server, kube-apiserver."""
