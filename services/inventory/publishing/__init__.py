"""Output of the inventory: messages, writes to the API server, Events, warnings."""
