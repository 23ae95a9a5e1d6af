"""ConfigMaps that tell others about faults and restarts: faulty nodes, retries, reasons, and what agents are told."""
