"""The Helm chart: written from the kustomize manifests in ``k8s``, which stay the only source."""
