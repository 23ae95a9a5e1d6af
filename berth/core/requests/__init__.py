"""Job requests: their validation, and gangs made from them. Needs no state of a cell."""
