"""Services: one folder a process; none imports another."""
