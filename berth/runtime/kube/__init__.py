"""The Kubernetes API: a port and its adapter. Only ``kubeconfig_library`` loads kubernetes_asyncio."""
