"""Services as parts of a cell: a module for each, so that only those are loaded which run."""
