"""The Kubernetes API: a port and its adapter. Only ``client`` imports kubernetes_asyncio."""
