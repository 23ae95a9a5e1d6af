"""Rules of the queue: strict order, reservations, and the room that gangs without chips leave to these."""
