"""External formats: Kubernetes objects, ConfigMaps, manifests and files, translated to and from schemas. Pure."""
