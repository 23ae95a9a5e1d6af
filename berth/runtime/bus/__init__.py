"""The bus: a port and its adapter for NATS. Only ``client`` imports nats."""
