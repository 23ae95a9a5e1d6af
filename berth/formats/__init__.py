"""External formats: Kubernetes objects, ConfigMaps, manifests and files, converted to and from schemas. Pure."""
