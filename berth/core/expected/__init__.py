"""Expected starts: when jobs that wait are expected to start, computed on demand from the state at a record."""
