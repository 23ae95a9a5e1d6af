"""The Kubernetes API behind a port. Only ``client`` imports kubernetes_asyncio."""
