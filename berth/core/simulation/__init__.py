"""Simulation of workloads on planned clusters, with the scheduler of a real cell."""
