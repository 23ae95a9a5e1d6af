"""Benches of a cell under load for long: an hour of jobs that come and go, many jobs that wait, many nodes."""
