"""``berth queues``: queues, what they mean, and what is wrong with them."""
