"""ConfigMaps about faults and restarts for other components: faulty nodes, retries, reasons, and orders to agents."""
