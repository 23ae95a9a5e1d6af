"""Alert rules for Prometheus that are about no single service: every process, and NATS."""
