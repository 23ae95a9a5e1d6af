"""Check of everything that is stored of a cell; nothing is written."""
