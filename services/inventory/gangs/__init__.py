"""Gangs: pods that belong together, and the job requests made from them."""
