"""What pods use of nodes beside chips, cpu and memory, as facts."""
