"""Commands of the lab: a cell on this machine, its demo, and faults of simulated nodes."""
