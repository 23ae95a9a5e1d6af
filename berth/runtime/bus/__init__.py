"""The bus: NATS behind a port. Only ``client`` imports nats."""
