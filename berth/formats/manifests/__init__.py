"""Job manifests: read, checked and written."""
