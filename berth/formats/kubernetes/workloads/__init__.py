"""Workloads: what is known of gangs before and beside their pods, by the kind of object that makes them."""
