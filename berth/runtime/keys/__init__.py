"""Keys and JWTs for NATS: an operator, an account of a cell, and users with their rights."""
