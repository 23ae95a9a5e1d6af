"""A whole cell simulated from a seed: real services, a virtual clock, a simulated bus and API server."""
