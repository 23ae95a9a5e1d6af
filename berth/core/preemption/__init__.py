"""Preemption and reclaim: which gangs end so that another one gets a place, and which place that is."""
