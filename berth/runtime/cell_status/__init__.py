"""Status of a cell for operators: who leads, what runs, how far it is, and how the bus does."""
