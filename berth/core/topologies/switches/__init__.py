"""Leaf switch (ToR) affinity: planners of NSLB 1.0 and 2.0 and of a single layer."""
