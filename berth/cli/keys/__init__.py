"""``berth keys``: keys and credentials of the users of NATS."""
