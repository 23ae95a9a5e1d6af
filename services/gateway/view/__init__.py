"""The view of the cell for the page: kept from facts, ledger and statuses, and sent as it is or as changes."""
