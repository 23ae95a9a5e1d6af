"""Decisions as text: what cells decide on histories that are drawn from seeds or come from vectors."""
