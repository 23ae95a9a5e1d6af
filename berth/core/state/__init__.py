"""State of a cell: folded facts, folded ledger, and the columns that follow from both."""
